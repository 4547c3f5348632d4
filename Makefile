# Two commands matter: `make demo` and `make test`. Each does its own set-up and is quick the second time.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
READY := .venv/.ready
TOPOLOGY ?= big-blue
TEST_WORKERS ?= 2
FUZZ_SECONDS ?= 120

# Hundreds of short processes (workers of Spark, bridges, commands) would each compile every module that they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check format bench bench-replication bench-custody bench-edge bench-shore bench-access chaos fuzz up down status lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

demo: $(READY) ## the duck voyage on real brokers, from sensor to Delta table, with its report in build/demo
	tools/demo.sh

test: check ## everything: make check, then all tests against real brokers
	tools/scratch.sh $(BIN)/pytest -n $(TEST_WORKERS)

check: $(READY) ## style, types, and which folder imports which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## repair style where that can be done by a program
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## the figures; also as JSON in build/bench
	for file in benchmarks/[a-z]*.py; do echo; $(BIN)/python -m "benchmarks.$$(basename "$$file" .py)"; done

bench-replication: $(READY) ## the replicator beside MirrorMaker 2, in one run (about 30 minutes)
	$(BIN)/python -m benchmarks.replication

bench-custody: $(READY) ## port calls of 1,000 to 10,000 boxes, and the ledgers of 100,000 logs (about 10 minutes)
	$(BIN)/python -m benchmarks.custody

bench-edge: $(READY) ## the way in at 20,000 logs, catching up, detection, the simulator, in one run (about 15 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.edge

bench-shore: $(READY) ## a million readings into Delta, memory, skew, alerts, point queries, feeds, in one run (about 25 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.shore

bench-access: $(READY) ## plans for 200 customers, 2,000 changed rules at a broker, what rules grow with (about 2 minutes)
	tools/scratch.sh $(BIN)/python -m benchmarks.access

chaos: $(READY) ## kill -9 of bridges, replicators and brokers, links cut: storms and voyages of FAIRLEAD_CHAOS_SECONDS (600) each
	$(BIN)/pytest -m chaos -s

fuzz: $(READY) ## everything that reads bytes of others, with atheris, for FUZZ_SECONDS (120) in all
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet --require-hashes -r tests/fuzz/requirements.txt
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

up: $(READY) ## start the sites of TOPOLOGY (big-blue)
	$(BIN)/fairlead up --topology $(TOPOLOGY)

down: $(READY) ## stop the sites of TOPOLOGY, keep their data
	$(BIN)/fairlead down --topology $(TOPOLOGY)

status: $(READY) ## show the sites of TOPOLOGY
	$(BIN)/fairlead status --topology $(TOPOLOGY)

lock: $(READY) ## renew requirements.lock (with uv) and fairlead/jars/jars.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --extra dev \
	    --upgrade --output-file requirements.lock pyproject.toml
	$(BIN)/python tools/lock_jars.py

clean: ## forget what was built here, but neither .venv nor any topology's data
	rm -rf build .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache *.egg-info

# Everything that the commands above need. The file is there only when all of it is.
$(READY): requirements.lock pyproject.toml tools/bootstrap.sh
	tools/bootstrap.sh
	touch $@
