#!/usr/bin/env bash
# Runs a command with a temporary folder of its own, which is gone afterwards: in memory where there is room for it.
# A hundred brokers are started by the tests, and a broker makes several small files for each log.
set -euo pipefail

room() { # GB that are free in /dev/shm and in memory, whichever is less
    local here memory
    here=$(df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)
    memory=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null)
    echo $((${here:-0} < ${memory:-0} ? ${here:-0} : ${memory:-0}))
}

base=${TMPDIR:-/tmp}
if [[ -z ${TMPDIR:-} && $(room) -ge 10 ]]; then
    base=/dev/shm
fi
folder=$(mktemp -d "$base/fairlead-test.XXXXXX")
trap 'rm -rf "$folder"' EXIT
TMPDIR=$folder "$@"
