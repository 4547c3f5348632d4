#!/usr/bin/env bash
# Renews what browsers get from others, as board/static/package-lock.json pins it: libraries and land into
# board/static/vendor, axe-core and the schema of AsyncAPI into tests/support/axe and tests/support/asyncapi. All are
# committed, so that nobody else needs npm.
# Writes their SHA-256 sums into tools/vendor.lock, which a test compares. "make vendor" calls it.
#
# A newer version: write it into board/static/package.json, then "tools/vendor.sh --upgrade".
set -euo pipefail
cd "$(dirname "$0")/.."

command -v npm >/dev/null || { echo "vendor: npm is missing. Debian/Ubuntu: apt install npm" >&2; exit 4; }
static=board/static vendor=board/static/vendor axe=tests/support/axe asyncapi=tests/support/asyncapi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm=(npm --prefix "$work" --omit-lockfile-registry-resolved=true --ignore-scripts --no-audit --no-fund --loglevel=error)

cp "$static/package.json" "$work"
if [ "${1:-}" = --upgrade ]; then
    "${npm[@]}" install --package-lock-only
    cp "$work/package-lock.json" "$static"
fi
cp "$static/package-lock.json" "$work"
"${npm[@]}" ci >/dev/null
from="$work/node_modules"

# The last line names the source map, which is left out.
bare() { grep -v '^//# sourceMappingURL=' "$1" >"$2"; }

rm -rf "$vendor" "$axe" "$asyncapi"
mkdir -p "$vendor"/{leaflet,uplot,land} "$axe" "$asyncapi"
bare "$from/leaflet/dist/leaflet.js" "$vendor/leaflet/leaflet.js"
cp "$from/leaflet/dist/leaflet.css" "$from/leaflet/LICENSE" "$vendor/leaflet"
cp "$from/uplot/dist/uPlot.iife.min.js" "$from/uplot/dist/uPlot.min.css" "$from/uplot/LICENSE" "$vendor/uplot"
.venv/bin/python tools/coastlines.py "$from/world-atlas/land-50m.json" "$vendor/land/land.json"
cp "$from/world-atlas/LICENSE" "$vendor/land"
bare "$from/axe-core/axe.min.js" "$axe/axe.min.js"
cp "$from/axe-core/LICENSE" "$from/axe-core/LICENSE-3RD-PARTY.txt" "$axe"
cp "$from/@asyncapi/specs/"{schemas/3.0.0.json,LICENSE,NOTICE} "$asyncapi"

find "$vendor" "$axe" "$asyncapi" -type f -exec chmod 644 {} +
find "$vendor" "$axe" "$asyncapi" -type f | LC_ALL=C sort | xargs sha256sum >tools/vendor.lock
echo "vendor: $(wc -l <tools/vendor.lock) files, as board/static/package-lock.json pins them" >&2
