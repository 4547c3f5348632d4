"""The report as data: its figures, the lines that must be true for it to be ``ok``, and its table for the terminal."""

from __future__ import annotations

import datetime as dt

import msgspec
from rich.table import Table

from simulators.network.controller import CutPeriod
from simulators.report.digests import DigestFigures
from simulators.report.yard import YardFigures
from simulators.voyage.waiting import AheadOfShip


class LinkFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic over one link in its direction, and its lag at the end, in records."""

    name: str
    records: int
    bytes: int
    lag: int
    state: str


class RollCallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The roll call after one departure, beside the truth.

    Args:
        port: UN/LOCODE of the port that the ship left.
        state: That of the newest record; null if the ship arrived, or the voyage ended, before a call was due.
        missing: The boxes that the first record names, ``truly_missing`` those that had published nothing then.
        alerted: How many of these have an alert at the port and at headquarters.
        minutes: From the departure until the last box was heard; null while one is missing.
    """

    ship: str
    port: str
    departed: dt.datetime
    state: str | None = None
    due: bool = True
    aboard: int = 0
    heard: int = 0
    overboard: int = 0
    unlisted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    truly_missing: tuple[str, ...] = ()
    alerted: int = 0
    minutes: float | None = None

    @property
    def ok(self) -> bool:
        if self.state is None:
            return not self.due
        alerts_due = len(self.missing) if self.state != "CUT_SHORT" else 0
        return self.missing == self.truly_missing and not self.unlisted and self.alerted >= alerts_due

    @property
    def text(self) -> str:
        """The figures in words."""
        if self.state is None:
            return "none in the logs" if self.due else "the voyage ended, or the ship was lost, before it came"
        missing = f"missing {len(self.missing)}" + (f" ({', '.join(self.missing[:3])})" if self.missing else "")
        after = "not complete" if self.minutes is None else f"complete after {self.minutes:.0f} min"
        alerts = f", {self.alerted} alerted" if self.missing else ""
        overboard = f", overboard {self.overboard}" if self.overboard else ""
        return f"aboard {self.aboard}, heard {self.heard}{overboard}, {missing}{alerts}, {after}"


class ShipLossFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a lost ship's boxes and readings.

    Args:
        port: The port that took over its logs, ``seconds`` long (wall time).
        boxes: Those that were aboard.
        taken_over: How many of their logs the port holds.
        landed: The boxes that were found and landed there.
        left: The departure since which only the ship had its readings.
        kept: Readings of these boxes that are in logs ashore.
        lost: By box, how many readings only the ship had; they are lost for good.
    """

    ship: str
    port: str
    seconds: float
    sank: dt.datetime
    left: dt.datetime
    boxes: tuple[str, ...]
    taken_over: int
    landed: tuple[str, ...]
    kept: int
    lost: dict[str, int]

    @property
    def readings_lost(self) -> int:
        return sum(self.lost.values())


class CustomerAlertFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts of one customer's boxes, and what its feed has of them; all but ``raised`` count states of alerts.

    Args:
        raised: Alerts that the customer must get: of its own boxes, or of those of its bookings while these hold.
        due: Their states in the logs.
        read: How many of these are in its feed, where it has the fewest.
        repeated: How many more than once.
        foreign: States of other alerts in its feed.
    """

    raised: int
    due: int
    read: int
    repeated: int = 0
    foreign: int = 0

    @property
    def ok(self) -> bool:
        return self.read == self.due and not self.repeated and not self.foreign


class CustomerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one customer could read with its own password.

    ``entitled``: readings that it must get, or movements if it is a port's authority; ``read``: how many of these it
    got; ``repeated``: how many more than once; ``foreign_read``: readings and movements of others that it got;
    ``refused``: forbidden attempts that were refused; ``wrongly_allowed``: forbidden attempts that succeeded;
    ``alerts``: None if its feed has none.
    """

    entitled: int
    read: int
    repeated: int
    foreign_read: int
    refused: tuple[str, ...]
    wrongly_allowed: tuple[str, ...] = ()
    alerts: CustomerAlertFigures | None = None

    @property
    def ok(self) -> bool:
        return (
            self.read == self.entitled
            and not self.repeated
            and not self.foreign_read
            and not self.wrongly_allowed
            and bool(self.refused)
        )


class HeadquartersFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Headquarters that were lost, and one customer's program that read its feed there and went on at the heir's.

    ``read_before``, ``read_after``: readings that it read at either site, each from where its group stood; ``lost`` of
    those that it must get, and ``repeated``.
    """

    site: str
    heir: str
    lost_at: dt.datetime
    customer: str
    read_before: int
    read_after: int
    lost: int
    repeated: int

    def lines(self) -> tuple[ReportLine, ...]:
        read = f"{self.read_before:,} at {self.site}, {self.read_after:,} at {self.heir}"
        return (
            ReportLine(
                f"headquarters {self.site} lost", f"{self.lost_at:%d %b %H:%M}, shore goes on at {self.heir}", True
            ),
            ReportLine(
                f"program of {self.customer} goes on at {self.heir}",
                f"read {read}, lost {self.lost:,}, repeated {self.repeated:,}",
                self.read_before > 0 and self.read_after > 0 and not self.lost and not self.repeated,
            ),
        )


class ReportLine(msgspec.Struct, frozen=True):
    """One line of the report: its name, its value as text, and whether it is true."""

    what: str
    value: str
    ok: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a voyage. Seconds are wall time; ``alert_seconds`` is null if the alert never arrived."""

    topology: str
    scenario: str
    seed: int
    starts: dt.datetime  # the same seed and start give the same voyage
    containers: int
    readings_published: int
    readings_in_logs: int
    readings_lost: int
    readings_repeated: int
    repeats_sent: int
    overboard: tuple[str, ...]
    overboard_alerts: int  # how many of these boxes have an alert
    false_alerts: int  # boxes with an overboard alert that are still aboard
    yard: YardFigures = YardFigures()
    logs_compared: int
    logs_differing: int
    delta_rows: int
    delta_rows_expected: int
    condition_rows: int  # windows of one hour and one container
    tables_equal: tuple[str, ...] = ()  # to the logs, or as computed again from their inputs (shore verify)
    tables_different: tuple[str, ...] = ()
    tables_not_compared: tuple[str, ...] = ()
    shore: bool = True  # whether the topology has tables
    digests: tuple[DigestFigures, ...] = ()  # of each passage
    alert_seconds: dict[str, float | None]
    roll_calls: tuple[RollCallFigures, ...] = ()
    customers: dict[str, CustomerFigures]
    links: tuple[LinkFigures, ...]
    cuts: tuple[CutPeriod, ...] = ()
    arrivals: tuple[AheadOfShip, ...] = ()  # at each port call after a ship's first
    ship_losses: tuple[ShipLossFigures, ...] = ()
    headquarters: HeadquartersFigures | None = None
    seconds: dict[str, float]  # wall time by phase
    versions: dict[str, str]
    chart_container: str = ""  # whose temperatures the page draws

    @property
    def ok(self) -> bool:
        return all(line.ok for line in self.lines())

    def lines(self) -> tuple[ReportLine, ...]:
        """Return the report's lines in order. The voyage fails if one is false."""
        out = [
            ReportLine("readings published", f"{self.readings_published:,}", self.readings_published > 0),
            ReportLine(
                "readings in logs",
                f"{self.readings_in_logs:,}",
                self.readings_in_logs + self.readings_sunk == self.readings_published,
            ),
            ReportLine("lost", f"{self.readings_lost:,}", self.readings_lost == 0),
            ReportLine(
                f"stored twice (of {self.repeats_sent:,} sent twice)",
                f"{self.readings_repeated:,}",
                not self.readings_repeated,
            ),
        ]
        for each in self.ship_losses:
            out += _ship_loss(each)
        out += [
            ReportLine(
                f"link {' - '.join(cut.between)} cut",
                f"{cut.starts:%d %b %H:%M} to {cut.ends:%d %b %H:%M}, {cut.days:.1f} days ({cut.seconds:.1f} s here)",
                True,  # the lines below show whether the cut lost anything
            )
            for cut in self.cuts
        ]
        if self.headquarters is not None:
            out += self.headquarters.lines()
        out += [
            ReportLine(
                f"link {link.name}",
                f"{link.records:,} records, {link.bytes / 1e6:.2f} MB, lag {link.lag}",
                not link.lag,
            )
            for link in self.links
        ]
        out += [_ahead(arrival) for arrival in self.arrivals]
        out += [
            ReportLine("logs compared between sites", f"{self.logs_compared:,}", self.logs_compared > 0),
            ReportLine("logs differing", f"{self.logs_differing:,}", self.logs_differing == 0),
        ]
        if self.shore:
            out += [
                ReportLine(
                    "rows in Delta / records in Kafka",
                    f"{self.delta_rows:,} / {self.delta_rows_expected:,}",
                    self.delta_rows == self.delta_rows_expected and self.delta_rows > 0,
                ),
                ReportLine("container-hours in conditions", f"{self.condition_rows:,}", self.condition_rows > 0),
                self._tables(),
            ]
        out += [
            ReportLine(
                "overboard: boxes lost / alerted / false alerts",
                f"{len(self.overboard)} / {self.overboard_alerts} / {self.false_alerts}",
                len(self.overboard) == self.overboard_alerts and not self.false_alerts,
            ),
        ]
        out.append(
            ReportLine(
                "faults in yards: to be found / found in time / false alerts",
                f"{self.yard.faults} / {self.yard.found} / {len(self.yard.false_alerts)}",
                self.yard.ok,
            )
        )
        out += [
            ReportLine(
                f"digests of {one.passage}",
                f"{one.digests:,}, {one.bytes / 1000:,.1f} kB, {one.told:,} times a box; {one.equal:,} equal to the "
                f"readings that came later, at most {one.kelvin_apart:.2f} K apart"
                + (f"; {one.sunk:,} sank with the ship" if one.sunk else ""),
                one.ok,
            )
            for one in self.digests
        ]
        out += [
            ReportLine(
                f"overboard alert at {site}", "never" if s is None else f"{s:.2f} s after the reading", s is not None
            )
            for site, s in self.alert_seconds.items()
        ]
        out += [
            ReportLine(f"roll call, {call.ship} from {call.port} {call.departed:%d %b %H:%M}", call.text, call.ok)
            for call in self.roll_calls
        ]
        out += [
            ReportLine(
                f"customer {name}",
                f"entitled {c.entitled:,}, read {c.read:,}, repeated {c.repeated:,}, foreign {c.foreign_read:,}, "
                f"refused {len(c.refused)}, wrongly allowed {len(c.wrongly_allowed)}",
                c.ok,
            )
            for name, c in self.customers.items()
        ]
        out += [
            ReportLine(
                f"alerts of customer {name}",
                f"{c.alerts.raised:,} of its boxes in {c.alerts.due:,} states; in its feed {c.alerts.read:,}, "
                f"repeated {c.alerts.repeated:,}, of others {c.alerts.foreign:,}",
                c.alerts.ok,
            )
            for name, c in self.customers.items()
            if c.alerts is not None
        ]
        return tuple(out)

    @property
    def readings_sunk(self) -> int:
        """Readings that are lost for good with ships; ``readings_lost`` does not count them."""
        return sum(each.readings_lost for each in self.ship_losses)

    def _tables(self) -> ReportLine:
        wrong = [f"different: {name}" for name in self.tables_different]
        wrong += [f"not compared: {name}" for name in self.tables_not_compared]
        equal = len(self.tables_equal)
        value = f"{equal} of {equal + len(wrong)}" + "".join(f"; {each}" for each in wrong)
        return ReportLine("tables equal to logs and inputs", value, equal > 0 and not wrong)

    def to_json(self) -> bytes:
        """Return the report as JSON: all fields, ``ok`` and the lines."""
        body = msgspec.to_builtins(self)
        body = {"ok": self.ok, **body, "lines": msgspec.to_builtins(self.lines())}
        return msgspec.json.format(msgspec.json.encode(body), indent=2)


def _ahead(arrival: AheadOfShip) -> ReportLine:
    """Return the line of one arrival. It is true if nothing was missing, or if a link on the way was cut."""
    value = (
        f"{arrival.ashore_here:,} of {arrival.ashore:,} records known ashore, "
        f"{arrival.own_here:,} of {arrival.own:,} of the ship's alerts, positions and custody"
    )
    value += f", the last {arrival.seconds:.1f} s later" if arrival.seconds else ""
    value += f"; {arrival.boxes_here:,} of {arrival.boxes:,} of its boxes"
    value += f"; missing {arrival.missing}" if arrival.missing else ""
    value += f"; the link {' - '.join(arrival.cut)} is cut" if arrival.cut else ""
    what = f"{arrival.port} up to date before {arrival.ship} arrives, {arrival.at:%d %b %H:%M}"
    return ReportLine(what, value, arrival.complete or arrival.cut is not None)


def _ship_loss(each: ShipLossFigures) -> list[ReportLine]:
    boxes = len(each.boxes)
    return [
        ReportLine(
            f"{each.ship} lost {each.sank:%d %b %H:%M}: logs taken over by {each.port}",
            f"{each.taken_over:,} of {boxes:,}, {each.seconds:.1f} s; boxes landed {len(each.landed):,}",
            each.taken_over == boxes,
        ),
        ReportLine(f"kept ashore of the boxes of {each.ship}", f"{each.kept:,} readings", True),
        ReportLine(
            f"lost for good with {each.ship}: readings since it left {each.left:%d %b %H:%M}",
            f"{each.readings_lost:,} of {len(each.lost):,} boxes, which it had not copied",
            True,  # every reading from before that departure counts as lost above
        ),
    ]


def as_table(report: Report) -> Table:
    """Return a table with one row per line; a false line is marked and red."""
    title = f"{report.scenario} on {report.topology}, seed {report.seed}, start {report.starts:%Y-%m-%d}"
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("what")
    table.add_column("value")
    for line in report.lines():
        table.add_row("[green]true[/]" if line.ok else "[bold red]FALSE[/]", line.what, line.value)
    return table
