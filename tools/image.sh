#!/usr/bin/env bash
# Builds the images fairlead:VERSION and fairlead-shore:VERSION from this checkout, with docker (buildx).
#
# BASE names the Debian 12 that they stand on (debian:bookworm-slim). Where no registry has it, debootstrap makes that one
# of Debian's packages, which needs root; MIRROR names their server. CA (else SSL_CERT_FILE) names the authorities by
# which package registries are trusted, where a proxy signs with one of its own. NETWORK=host builds with the machine's
# network.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
context=build/image
ca=${CA:-${SSL_CERT_FILE:-}}
base=${BASE:-debian:bookworm-slim}
if ! docker image inspect "$base" >/dev/null 2>&1 && ! docker pull --quiet "$base" >/dev/null 2>&1; then
    if [[ -n ${BASE:-} ]] || ! command -v debootstrap >/dev/null; then
        echo "image.sh: no image $base, neither here nor in a registry. Name another with BASE, or install debootstrap" >&2
        exit 1
    fi
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase bookworm "$root" ${MIRROR:-} >&2
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | docker import - "$base" >/dev/null
fi
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
        --build-arg BASE="$base" --network "${NETWORK:-default}" \
        ${ca:+--secret id=ca,src="$ca"} "$context" >/dev/null
    docker image inspect --format "{{index .RepoTags 0}}: {{.Size}} bytes" "$name:$version"
done
