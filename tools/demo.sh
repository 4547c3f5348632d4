#!/usr/bin/env bash
# The duck voyage from nothing: seven sites with data of their own under build/demo, the voyage, its report, all stopped.
set -euo pipefail
cd "$(dirname "$0")/.."

export FAIRLEAD_HOME="$PWD/build/demo/home"
fairlead() { .venv/bin/fairlead "$@"; }

finish() {
    fairlead down --topology big-blue >/dev/null
}
trap finish EXIT

fairlead down --topology big-blue --purge >/dev/null
fairlead voyage big-blue --containers 200 --seed 7 --report build/demo

cat <<END

The data stays in build/demo/home until the next demo. To look at it:
  export FAIRLEAD_HOME=$FAIRLEAD_HOME
  .venv/bin/fairlead tables
  .venv/bin/fairlead sql "select equipment_reference, max(return_temperature) warmest from readings group by 1 order by 2 desc limit 5"
  .venv/bin/fairlead up && .venv/bin/fairlead status
END
