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

fairlead down --topology big-blue --purge --yes >/dev/null
fairlead voyage run big-blue --containers 200 --seed 7 --board --report build/demo

cat <<END

The data stays in build/demo/home until the next demo. To look at it (more in README.md, "By hand"):
  source .venv/bin/activate
  export FAIRLEAD_HOME=$FAIRLEAD_HOME
  fairlead sql "select equipment_reference, max(return_temperature) warmest from readings group by 1 order by 2 desc limit 5"
  fairlead report container BIGU3375567
  fairlead up && fairlead board
END
