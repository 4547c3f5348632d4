# Two commands matter: `make demo` and `make test`. Each does its own set-up and is quick the second time.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
READY := .venv/.ready
READY_FOR_TESTS := .venv/.ready-for-tests
TOPOLOGY ?= big-blue
TEST_WORKERS ?= 3
# Most long tests use Spark or sail a voyage, of which two keep both cores busy.
LONG_WORKERS ?= 2
FUZZ_SECONDS ?= 120
# Files of the suites that make containers runs once more; any other runs the same way (docs/compose.md).
IN_CONTAINERS := fairlead/kafka/test_faults edge/test_readings edge/test_custody edge/test_faults edge/test_kills \
	replication/test_copies replication/test_links replication/test_custody replication/test_faults_kills \
	replication/test_faults_leaders replication/test_states_of_disks \
	acl/test_apply acl/test_attacks acl/test_customers acl/test_enforced acl/test_offboarding
LOCKED := --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links

# Hundreds of short processes (workers of Spark, bridges, commands) would each compile every module that they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long check format docs bench bench-replication bench-custody bench-edge bench-shore bench-access bench-board chaos containers fuzz image compose-demo up down status lock vendor release clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

demo: $(READY) ## the duck voyage on real brokers, from sensor to Delta table, with its report in build/demo
	tools/demo.sh

test: check $(READY_FOR_TESTS) ## make check, then the tests against real brokers (12 to 25 minutes on two cores)
	tools/scratch.sh $(BIN)/pytest -n $(TEST_WORKERS) --durations 40 --durations-min 10

test-long: $(READY_FOR_TESTS) ## what make test leaves out because it takes longer: voyages with trouble, port calls, Spark's crashes; containers where docker runs
	tools/scratch.sh $(BIN)/pytest -m "long and not chaos and not containers" -n $(LONG_WORKERS) --durations 40 --durations-min 10
	if docker info >/dev/null 2>&1; then $(MAKE) image containers; else echo "no docker engine here: the suites in containers are left out"; fi

check: $(READY) ## style, types, and which folder imports which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## repair the style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(READY) ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY) ## the figures; also as JSON in build/bench
	for name in alert_first detection devices mqtt_profiles thin_link; do echo; $(BIN)/python -m benchmarks.$$name; done

bench-replication: $(READY) ## the replicator beside MirrorMaker 2, in one run (about 30 minutes)
	$(BIN)/python -m benchmarks.replication

bench-custody: $(READY) ## port calls of 1,000 to 10,000 boxes, the seizure of 20,000 (about 25 minutes)
	$(BIN)/python -m benchmarks.custody

bench-edge: $(READY) ## the way in at 20,000 logs, catching up, detection, digests, in one run (about 15 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.edge

bench-shore: $(READY) ## a million readings into Delta, memory, skew, alerts, point queries, feeds, in one run (about 25 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.shore

bench-access: $(READY) ## plans for 200 customers, 2,000 changed rules at a broker, what rules grow with (about 2 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.access

bench-board: $(READY) ## pages of a fleet of 20,000 boxes while 50 people look, 1,000 open event streams (about 15 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.board

chaos: $(READY) ## kill -9 of bridges, replicators and brokers, links cut: storms and voyages of FAIRLEAD_CHAOS_SECONDS (600) each; all examples
	$(BIN)/pytest -m chaos -s
	$(BIN)/pytest -m "hypothesis and not chaos and not containers" --hypothesis-profile=whole

containers: $(READY) ## a fleet in containers while its machines and networks fail, and files of the suites against containers; needs docker and make image
	$(BIN)/pytest -m containers tests/containers
	tools/scratch.sh $(BIN)/pytest --sites=containers -m "not chaos and not containers" $(IN_CONTAINERS:%=tests/integration/%.py)

fuzz: $(READY) ## everything that reads bytes of others, with atheris, for FUZZ_SECONDS (120) in all
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet --require-hashes -r tests/fuzz/requirements.txt
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

image: $(READY) ## the container images, with docker (docs/compose.md)
	tools/image.sh

compose-demo: $(READY) ## the duck voyage in containers, one broker of each port killed on the way; its report (about 20 minutes)
	tools/compose-demo.sh

up: $(READY) ## start the sites of TOPOLOGY (big-blue)
	$(BIN)/fairlead up --topology $(TOPOLOGY)

down: $(READY) ## stop the sites of TOPOLOGY, keep their data
	$(BIN)/fairlead down --topology $(TOPOLOGY)

status: $(READY) ## show the sites of TOPOLOGY
	$(BIN)/fairlead status --topology $(TOPOLOGY)

lock: $(READY) ## renew requirements.lock, its part requirements-run.lock (both with uv), fairlead/jars/jars.lock and the notices
	uv pip compile $(LOCKED) --extra dev --upgrade --output-file requirements.lock pyproject.toml
	uv pip compile $(LOCKED) --constraints requirements.lock --output-file requirements-run.lock pyproject.toml
	$(BIN)/python tools/lock_jars.py
	$(BIN)/python -m tools.notices

vendor: $(READY) ## renew what browsers get from others, as board/static/package-lock.json pins it (with npm)
	tools/vendor.sh
	$(BIN)/python -m tools.notices

release: $(READY) ## of the last commit, in dist/: wheel, sdist, SBOM, notices, lock, SHA-256 sums
	$(BIN)/python -m tools.release

clean: ## forget what was built here, but neither .venv nor any topology's data
	rm -rf build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache *.egg-info

# Everything that the commands above need. The file is there only when all of it is.
$(READY): requirements.lock pyproject.toml tools/bootstrap.sh
	tools/bootstrap.sh
	touch $@

# What only tests need: programs of others.
$(READY_FOR_TESTS): tools/bootstrap.sh
	tools/bootstrap.sh tests
	touch $@
