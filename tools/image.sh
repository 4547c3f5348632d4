#!/usr/bin/env bash
# Builds the images fairlead:VERSION and fairlead-shore:VERSION from this checkout, with docker (buildx).
#
# BASE names the Debian 12 that they stand on (debian:bookworm-slim). CA (else SSL_CERT_FILE) names the authorities by
# which package registries are trusted, where a proxy signs with one of its own. NETWORK=host builds with the machine's
# network.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
context=build/image
ca=${CA:-${SSL_CERT_FILE:-}}
rm -rf "$context" && mkdir -p "$context"
cp requirements-run.lock "$context"
# Without --wheel: the wheel is built from the sdist, and has nothing that an earlier build left behind.
.venv/bin/python -m build --no-isolation --outdir "$context" . >/dev/null
.venv/bin/python - "$context" <<'END'
import os
import shutil
import sys
from pathlib import Path

from fairlead import home
from fairlead.jars import ensure_jars, ensure_packages

context = Path(sys.argv[1])
store = home.cache() / "jars"
for name in ("kafka", "delta"):
    for jar in (*ensure_jars(name), store / "verified.json"):
        place = context / name / jar.relative_to(store)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(jar, place)
(context / "spark-packages").mkdir()
for jar in ensure_packages(os.environ.get("SPARK_PACKAGES", "").split()):
    place = context / "spark-packages" / jar.parent.name / jar.name
    place.parent.mkdir(exist_ok=True)
    shutil.copy2(jar, place)
END

for target in fairlead shore; do
    name=${NAME:-fairlead}; [ "$target" = fairlead ] || name=$name-$target
    docker build --quiet --file compose/Dockerfile --target "$target" --tag "$name:$version" --tag "$name:latest" \
        --build-arg BASE="${BASE:-debian:bookworm-slim}" --network "${NETWORK:-default}" \
        ${ca:+--secret id=ca,src="$ca"} "$context" >/dev/null
    docker image inspect --format "{{index .RepoTags 0}}: {{.Size}} bytes" "$name:$version"
done
