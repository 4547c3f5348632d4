#!/usr/bin/env bash
# The duck voyage in containers, with the weather of its links: images, a Compose project under build/compose, the
# voyage, its report; all stopped.
# While it sails, one broker of every site with three is killed and comes back, one site after the other.
#
# TOPOLOGY (big-blue), SCENARIO (the topology's), CONTAINERS (200) and SEED (7) choose the voyage, FOLDER where the
# project is; KEEP=1 leaves the containers running.
set -euo pipefail
cd "$(dirname "$0")/.."

topology=${TOPOLOGY:-big-blue}
folder=${FOLDER:-$PWD/build/compose/$topology}
compose() { docker compose --file "$folder/compose.yaml" "$@"; }
say() { printf 'compose-demo: %s\n' "$*" >&2; }

docker compose version >/dev/null || { say "docker with its compose plugin is needed; docs/compose.md"; exit 4; }
[ -n "${FAIRLEAD_IMAGE:-}" ] || tools/image.sh
.venv/bin/fairlead compose render "$folder" --topology "$topology" --links

finish() {
    [ -n "${KEEP:-}" ] || compose down --volumes --timeout 10 >/dev/null 2>&1
}
trap finish EXIT
compose down --volumes --timeout 10 >/dev/null 2>&1 || true
began=$SECONDS
compose up --detach --wait --wait-timeout 600 >"$folder/up.log" 2>&1 || { tail -20 "$folder/up.log" >&2; exit 4; }
say "healthy after $((SECONDS - began)) s"

log=$folder/voyage.log
compose run --rm -T cli voyage run "/etc/fairlead/$topology.yaml" --containers "${CONTAINERS:-200}" --seed "${SEED:-7}" \
    ${SCENARIO:+--scenario "$SCENARIO"} --no-workers --patience 300 --report /report >"$log" 2>&1 &
voyage=$!

sails() { kill -0 "$voyage" 2>/dev/null; }
until grep -q published "$log" || ! sails; do sleep 1; done
killed=()
for broker in $(compose config --services | sed -n 's/^\(.*-kafka-3\)$/\1/p'); do
    sails || break
    compose kill --signal KILL "$broker" >/dev/null 2>&1
    sleep 10
    compose start "$broker" >/dev/null 2>&1
    killed+=("$broker")
    until [ "$(docker inspect --format '{{.State.Health.Status}}' "$(compose ps --quiet "$broker")")" = healthy ] || ! sails; do
        sleep 1
    done
done
during=$(sails && echo yes || echo no)
status=0
wait "$voyage" || status=$?
cat "$log"
say "killed while it sailed, and back again: ${killed[*]:-none}"
[ "$during" = yes ] || { say "the voyage was over before all brokers had been killed"; exit 1; }
exit "$status"
