"""Write ``docs/sizing.md``: what fleets of 1,000 to 500,000 boxes need, from the model of ``fairlead voyage size``.

    python -m tools.sizing_reference [--figures build/bench/replication.json]

The rows come from ``tools.fleets``, the measurements beside them from ``docs/benchmarks/sizing.json`` and
``docs/benchmarks/replication.json``. With ``--figures``, the parts ``sizes`` and ``simulation`` of that file first
replace those of ``sizing.json``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from edge.logwriter.records import published
from simulators.fleet.scenario_file import load as load_scenario
from simulators.scale.costs import CABLE_SHARE, DATA_SHARE, LOGS_PER_BROKER, stored_bytes
from simulators.scale.sizing import Size, size, sizes
from simulators.scale.table import human
from simulators.voyage.voyage import Voyage
from tools.fleets import COPIES, DAYS_KEPT, MEMORY_EACH, USED, FleetSize, SatelliteSize, fleet, predict
from topologies.loader.load import load as load_topology

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "sizing.md"
FIGURES: Final = DOCS / "benchmarks" / "sizing.json"
REPLICATION: Final = DOCS / "benchmarks" / "replication.json"
FLEETS: Final = (1_000, 10_000, 50_000, 100_000, 500_000)
SCENARIO: Final = "duck-voyage"
INTERVAL: Final = dt.timedelta(hours=1)
MODELLED: Final = 100  # boxes: the page is made within seconds, and tested
HEADQUARTERS: Final = "los-angeles"
SHIP: Final = "duck-star"
SEED: Final = 7
WIDTH: Final = 120


def rows() -> list[FleetSize]:
    """Return a row for each of ``FLEETS``, from one run of the model."""
    voyage = _voyage(SCENARIO, MODELLED, INTERVAL)
    return [fleet(each, HEADQUARTERS, SHIP) for each in sizes(voyage, FLEETS)]


def _voyage(scenario: str, containers: int, interval: dt.timedelta) -> Voyage:
    plan = load_scenario(scenario).adjusted(containers=containers, start=None, reading_interval=interval)
    return Voyage(plan, load_topology(plan.topology), seed=SEED, with_bad=False)


def page(found: Sequence[FleetSize], figures: dict[str, Any], replication: dict[str, Any]) -> str:
    """Return the page's Markdown.

    Args:
        found: The rows.
        figures: ``docs/benchmarks/sizing.json``.
        replication: ``docs/benchmarks/replication.json``.
    """
    parts = [_head(), _headquarters(found), _satellites(found), _rules(), _checks(figures, replication)]
    parts += [_simulation(figures["simulation"]), _limits()]
    blocks = "\n\n".join(parts).split("\n\n")
    return "\n\n".join(map(_filled, blocks)) + "\n"


def _filled(block: str) -> str:
    """Break the lines of a paragraph or list anew: values make them longer and shorter."""
    if block.startswith(("|", "#", "<!--")):
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(
        textwrap.fill(
            " ".join(each.split()),
            WIDTH,
            subsequent_indent="  " if each.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for each in items
    )


def _head() -> str:
    return f"""# Sizing

<!-- Made by `python -m tools.sizing_reference`. Do not edit. -->

How many brokers, replicators and bytes a fleet needs. Every row comes from one model, that of `fairlead voyage size`
([simulators](simulators.md#how-large-must-it-be)): the scenario `{SCENARIO}` on the topology `big-blue`, with a reading
of every box each hour. {MODELLED} boxes of its mix are modelled, and what boxes cause is multiplied.
[How far the model is off](#how-far-the-model-is-off) says what of it was measured, and at which sizes. On real brokers,
100,000 logs are the most that have run here ([growth](benchmarks/replication.md#growth)). For your own fleet, run
`fairlead voyage size 20000 TOPOLOGY --scenario FILE --interval 1h`."""


def _table(head: Sequence[str], lines: Iterable[Sequence[str]], *, texts: Collection[int] = ()) -> str:
    """Return a Markdown table of numbers. ``texts``: the columns, counted from 0, that have texts."""
    kinds = "".join("---|" if nth in texts else "---:|" for nth in range(len(head)))
    return "\n".join([_row(head), f"|{kinds}", *map(_row, lines)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _headquarters(found: Sequence[FleetSize]) -> str:
    head = (
        "boxes",
        "ships",
        "logs",
        "brokers",
        f"brokers, {COPIES} copies",
        "replicators",
        "memory of all replicators",
        "their cores",
        "records a day",
        "stored a day",
        "over links a day",
        f"disk, {DAYS_KEPT} days",
    )
    lines = [
        (
            f"{each.boxes:,}",
            f"{each.ships:,}",
            f"{each.logs:,.0f}",
            f"{each.brokers:,}",
            f"{each.brokers_copied:,}",
            f"{each.replicators:,}",
            human(each.memory_of_all),
            f"{each.replicator_cores:.3f}",
            f"{each.records_per_day:,.0f}",
            human(each.stored_per_day),
            human(each.fetched_per_day),
            human(each.disk),
        )
        for each in found
    ]
    return f"""## Headquarters

Headquarters have every log. In `big-blue` each port has every log, too, and needs the same.

{_table(head, lines)}

Disk is that of one copy, with the files of each log."""


def _satellites(found: Sequence[FleetSize]) -> str:
    head = (
        "boxes of the fleet",
        "boxes aboard",
        "from the ship, a day",
        "minutes",
        "of its rate",
        "on its call's day",
        "to the ship, a day",
        "minutes",
        "of its rate",
        "if all ships call on one day",
    )
    lines = [
        (f"{each.boxes:,}", f"{each.aboard:,.0f}", *_direction(each.from_ship), *_direction(each.to_ship))
        for each in found
    ]
    late = [each for each in found if each.to_ship.fullest_share > 1]
    note = (
        "To a ship comes all that its link selects. In `big-blue` these are the ledgers, alerts, events and bookings "
        "of the whole fleet, so this direction grows with the fleet, and not with the ship."
    )
    if late:
        note += (
            f" With {late[0].boxes:,} boxes it would be late on a day on which all ships call. "
            "Let a link of such a fleet select the bookings and events of the ports that the ship calls at."
        )
    return f"""## One ship's satellite link

The fullest ship, on a link of 64 kbit/s each way. Readings of boxes wait for the berth. By satellite go the ship's
positions, custody, events, and a digest of its boxes every 15 minutes.

{_table(head, lines)}

{note}"""


def _direction(of: SatelliteSize) -> tuple[str, ...]:
    return human(of.bytes_per_day), f"{of.minutes_per_day:.1f}", f"{of.share:.2%}", f"{of.fullest_share:.1%}"


def _rules() -> str:
    costs = [(cost.name, f"{cost.value:g} {cost.unit}".strip(), cost.origin, cost.where) for cost in USED]
    table = _table(("what", "value", "known", "from"), costs, texts=(0, 2, 3))
    return f"""## The rules

- **Brokers**: logs times copies, divided by {LOGS_PER_BROKER.value:,.0f}, rounded up. A broker needs 1.08 open files
  for a log, and with a limit of 20,000 open files it opened about {LOGS_PER_BROKER.value:,.0f} logs
  ([installing](install.md)). With a higher limit it takes more; how many was not measured.
- **Replicators**: {human(MEMORY_EACH)} each. Of that, `--memory` (256 MB) is for batches, and the rest for logs.
  Several share the work with [`--group`](replicators.md). Every member lists all topics
  and reads all ledgers. The model divides all memory of logs among them, so it is too low for several.
- **Ships** carry 20,000 boxes at most; what boxes cause at sea is divided among them.

{table}"""


def _checks(figures: dict[str, Any], replication: dict[str, Any]) -> str:
    lines = [line for row in figures["sizes"]["rows"] for line in _check_of_copy(row)]
    large = replication["growth"]["rows"][-1]
    found = predict(large["logs"], large["records"], 0.0)
    lines += [
        _check(large["logs"], "memory of a replicator", found.memory_bytes, large["rss_mb"] * 1e6, human),
        _check(large["logs"], "CPU of a replicator", found.cpu_seconds, large["cpu_seconds"], _seconds),
    ]
    voyage = figures["voyage"]
    modelled = size(
        _voyage(voyage["scenario"], voyage["boxes"], dt.timedelta(hours=voyage["interval_hours"])), voyage["boxes"]
    )
    sailed = _check_of_voyage(modelled, voyage)
    head = ("logs", "what", "model", "measured", "model : measured")
    return f"""## How far the model is off

A first copy of logs with 24 readings each, one reading in a batch, between two real brokers
(`python -m benchmarks.replication --only sizes`, {figures["sizes"]["at"][:10]}, load
{figures["sizes"]["machine"]["load_average"]:.0f} on two cores), and the largest copy of
[the benchmarks](benchmarks/replication.md#growth) (20 records in 4 batches, {replication["growth"]["at"][:10]}):

{_table(head, lines, texts=(1,))}

A ratio in brackets proves nothing, because a cost of the model is taken from this measurement. With
{large["logs"]:,} logs the CPU is too high: five records shared a batch there, and the model has a batch for each.
For memory, the model counts the batches that wait at their bytes, and there at none, because their size was not kept.

A real voyage (`fairlead voyage run minimal --containers {voyage["boxes"]} --interval {voyage["interval_hours"]}h`,
{voyage["at"]}), bytes of all logs without strays, alerts and dead letters, and bytes of batches over both links of each
direction:

{_table(("boxes", *head[1:]), sailed, texts=(1,))}

Strays are left out because they are the voyage's own: it sails thousands of times faster than the sea, so a box's
readings often come before its custody. They were {human(voyage["strays_bytes"])} at Tokyo."""


SET_BY: Final = frozenset(
    {
        (1_000, "bytes on the wire"),
        (1_000, "CPU of a replicator"),
        (5_000, "CPU of a replicator"),
        (5_000, "disk"),
    }
)
"""The measurements from which costs of the model are taken, so that they prove nothing."""


def _check(logs: int, what: str, model: float, measured: float, show: Any) -> tuple[str, ...]:
    ratio = f"{model / measured:.2f}"
    return f"{logs:,}", what, show(model), show(measured), f"({ratio})" if (logs, what) in SET_BY else ratio


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _check_of_copy(row: dict[str, Any]) -> list[tuple[str, ...]]:
    found = predict(row["logs"], row["records"], _reading_bytes(row))
    return [
        _check(row["logs"], "bytes in the copy", found.stored_bytes, row["stored_bytes"], human),
        _check(row["logs"], "bytes on the wire", found.wire_bytes, row["wire_bytes"], human),
        _check(row["logs"], "disk", found.disk_bytes, row["disk_bytes"], human),
        _check(row["logs"], "memory of a replicator", found.memory_bytes, row["rss_mb"] * 1e6, human),
        _check(row["logs"], "CPU of a replicator", found.cpu_seconds, row["cpu_seconds"], _seconds),
    ]


def _reading_bytes(row: dict[str, Any]) -> int:
    """Bytes of a reading with a payload as long as those that were measured, in a log."""
    return stored_bytes(published(b"x" * row["payload_bytes"], key="dev-BIGU0000000", at_ms=10**12, received_ms=10**12))


def _check_of_voyage(modelled: Size, voyage: dict[str, Any]) -> list[tuple[str, ...]]:
    sites = {each.name: each.stored_bytes_per_day * modelled.days for each in modelled.sites}
    lines = [
        _check(voyage["boxes"], f"bytes in the logs of {name}", sites[name], measured, human)
        for name, measured in voyage["sites"].items()
    ]
    for name, measured in voyage["links"].items():
        batches = sum(
            each.bytes_per_day * modelled.days * (DATA_SHARE if each.carrier == "satellite" else CABLE_SHARE).value
            for each in modelled.links
            if each.name.partition(":")[0] == name
        )
        lines.append(_check(voyage["boxes"], f"batches, {name}", batches, measured, human))
    return lines


SIMULATED: Final = {
    "memory_mb": "memory that logs add, MB",
    "kb_per_log": "of that for a log, kB",
    "ledgers_cpu_seconds": "CPU to read the ledgers, s",
    "first_plan_cpu_seconds": "CPU of the first plan, s",
    "comparison_cpu_seconds": "CPU to compare every log with its source, s",
    "standing_by_ms_per_second": "CPU of a second of standing by, ms",
    "one_records_cpu_ms": "CPU of a record in one log, ms",
    "thousand_records_cpu_ms": "CPU of a record in each of 1,000 logs, ms",
    "one_moves_cpu_ms": "CPU of one box that changes its holder, ms",
    "thousand_moves_cpu_ms": "CPU of 1,000 boxes that do, ms",
    "one_new_cpu_ms": "CPU of one new box, ms",
    "thousand_new_cpu_ms": "CPU of 1,000 new boxes, ms",
    "sessions_of_a_broker": "fetch sessions of a source's broker",
    "connections_of_a_port": "connections to one source",
}


def _simulation(part: dict[str, Any]) -> str:
    found = part["rows"]
    head = ["", *(f"{row['logs']:,} logs" for row in found), "growth"]
    lines = []
    for name, words in SIMULATED.items():
        grown = part["growth"].get(name)
        lines.append((words, *(_figure(row[name]) for row in found), "" if grown is None else f"{grown:g}"))
    return f"""## A replicator with very many logs

The replicator that ships, at headquarters, with two ports that have every log, against clusters in the same process
(`python -m benchmarks.replication --only simulation`, {part["at"][:10]}). All copies are complete, so this is
bookkeeping alone. The clusters' own CPU is subtracted; the kernel's and that of TLS are missing. *Growth* is the ratio
of the largest to the smallest size, divided by that of their logs: 1 is in proportion, more is worse.

{_table(head, lines, texts=(0,))}

A move costs what that box costs: a plan looks only at the logs of what has changed. For a new box each cluster sends
its whole list of topics, of which only the differences are decoded.

A **?** could not be measured: the change was lost in the noise of standing by. Where one change costs more than a
thousand, work that comes now and then fell into its seconds. The growth of such a figure is that to
the largest size which has it. The first plan grows faster than the logs: with many of them the sources' lists arrive
seconds apart, and each has its logs planned again."""


def _figure(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _limits() -> str:
    return """## What is not in it

- Alerts, strays, dead letters, customers' feeds, Delta tables and their disk.
- Brokers' memory and CPU. 10,000 logs that rest cost a broker 10 to 16 % of a core
  ([benchmarks](benchmarks/replication.md#standing-by)).
- Failures: what is sent again, and what is kept longer while a site is cut off.
- Several replicators at one site, links with TLS, and more than one data centre."""


def write(figures: dict[str, Any]) -> None:
    """Write the page."""
    replication = json.loads(REPLICATION.read_text(encoding="utf-8"))
    PAGE.write_text(page(rows(), figures, replication), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, and before it the figures if new ones are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="new figures of benchmarks.replication")
    options = parser.parse_args(arguments)
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    if options.figures is not None:
        new = json.loads(options.figures.read_text(encoding="utf-8"))
        figures |= {part: new[part] for part in ("sizes", "simulation") if part in new}
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    write(figures)


if __name__ == "__main__":
    main()
