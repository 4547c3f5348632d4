"""Entries that a stolen ship writes into its ledger: every reader of ledgers stays as it was, and says so."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pyarrow as pa
import pytest

from edge.alerts.site_alerts import KIND, LedgerAlerts
from edge.custody.protocol import CustodyProtocol
from edge.custody.receiver import Receiver
from edge.holdings import Holdings
from edge.metrics import Metrics
from fairlead.custody.history import chains
from fairlead.custody.ledger import Ledgers, Told
from fairlead.custody.view import SEIZING_TERMS, CustodyView
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.protocol.record import NewRecord, Record, encode_batch
from fairlead.kafka.protocol.types import TP, FetchedPartition
from fairlead.records import encode
from fairlead.records.alert import Alert
from fairlead.records.custody import CustodyEntry, LedgerEntry, Marker, RefusalEntry, ReturnEntry
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from shore.tables.custody import believed_of
from tests.support.edge.samples import topology
from tests.support.honest_ledgers import ABOARD, ASHORE, HONEST, NEW, NOW, OUTSIDE, claim, grant, log
from topologies.ledger_trust import Believer, Rules, history_rules, sifted

WRONG_DIGIT = f"containers.BIGU000001{(int(ASHORE[-1]) + 1) % 10}"


def marker_of(entry: CustodyEntry, **other: Any) -> bytes:
    """The stored marker that an entry tells of, or another one."""
    names = ("log", "term", "from_site", "to_site", "event", "event_id", "event_date_time", "drained", "drained_since")
    marker = Marker(**{name: getattr(entry, name) for name in names} | other, nonce="n")
    record = marker_record(encode(marker), timestamp_ms=0)
    return term_batch([record], term=marker.term, offset=entry.marker_offset, marker=entry.marker_offset)


def refusal(of: str) -> RefusalEntry:
    return RefusalEntry(log=of, order_id="o", code="", reason="", refused_date_time=NOW, refused_by="star")


def returned(strays: str) -> ReturnEntry:
    return ReturnEntry(
        log=ABOARD,
        term=2,
        marker_offset=20,
        end_offset=30,
        kept=3,
        strays_log=strays,
        strays_end=9,
        returned_date_time=NOW,
        returned_by="star",
    )


_TO_TOKYO = grant("star", ABOARD, 3, "tokyo")
FORGED: dict[str, LedgerEntry] = {
    "a box ashore is taken away for ever": grant("star", ASHORE, 32767, None),
    "a box ashore is taken aboard": grant("star", ASHORE, 4, "star"),
    "a box ashore leaves the system": grant("star", ASHORE, 4, None),
    "the term in which a box came aboard goes elsewhere": grant("star", ABOARD, 2, "sydney", marker_offset=21),
    "a term of its own box that nobody knows of": grant("star", ABOARD, 32767, None),
    "another's strays are drained": grant("star", ABOARD, 3, "tokyo", drained={"strays.tokyo": 10**12}),
    "strays of no site are drained": grant("star", ABOARD, 3, "tokyo", drained={"strays.atlantis": 1}),
    "strays of no site take the next grant's room": grant("star", ABOARD, 3, "tokyo", drained={"strays.atlantis": 0}),
    "a seizure takes the next grant's room": grant(
        "star", ABOARD, 18, "star", event="SEIZURE", drained={f"strays.{'x' * 200_000}": 0}
    ),
    "strays of a name that the next marker cannot hold": grant(
        "star", ABOARD, 3, "tokyo", drained={f"strays.{'x' * 500_000}": 0}
    ),
    "what is drained is no log of strays": grant("star", ABOARD, 3, "tokyo", drained={"bookings.sydney": 1}),
    "strays are drained behind the marker": grant("star", ABOARD, 3, "tokyo", drained_since=31),
    "a feed": grant("star", "feeds.ducks", 1, "star"),
    "bookings": grant("star", "bookings.sydney", 1, "star"),
    "a log that is a ledger": grant("star", "custody.tokyo", 2, "star"),
    "a wrong check digit": grant("star", WRONG_DIGIT, 1, "star"),
    "a box in the stream of another line": grant("star", log(1, owner="YELU"), 1, "star"),
    "a box of nobody": grant("star", log(1, owner="REDU"), 1, "star"),
    "a new box opened at sea": grant("star", NEW, 1, "star"),
    "a box that has left is opened at sea": grant("star", OUTSIDE, 3, "star", from_site=None, event="GTIN"),
    "a box that has left is claimed at sea": claim("star"),
    "a seizure": grant("star", ASHORE, 19, "star", event="SEIZURE"),
    "a seizure for another": grant("star", ASHORE, 19, "head", event="SEIZURE"),
    "in another's name": grant("tokyo", ABOARD, 3, "tokyo", from_site="star"),
    "what another held": grant("star", ASHORE, 4, "star", from_site="sydney"),
    "a return into another's strays": returned("strays.tokyo"),
    "another term than the marker's": msgspec.structs.replace(_TO_TOKYO, marker_batch=marker_of(_TO_TOKYO, term=9)),
    "another receiver than the marker's": msgspec.structs.replace(
        _TO_TOKYO, marker_batch=marker_of(_TO_TOKYO, to_site="head")
    ),
    "a marker that is none": msgspec.structs.replace(_TO_TOKYO, marker_batch=b"x" * 80),
}
NOT_ACTED_ON_ASHORE = {
    "another's strays are drained",
    "strays of no site are drained",
    "strays of no site take the next grant's room",
}
"""Shore looks at no position of strays: to it these are the ship's grants of a box that it holds."""

Told_ = tuple[str, LedgerEntry]
Reader = Callable[[Sequence[Told_]], tuple[Any, int]]
"""Takes in entries (of the ledger of a site); what it knows afterwards, and of how many entries it complains."""


@dataclass
class Edge:
    """A bridge's part that follows ledgers, and the alerts that it raises."""

    refused: list[Any] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)

    def __call__(self, entries: Sequence[Told_]) -> tuple[Any, int]:
        holdings, metrics, writers = Holdings("tokyo", CustodyView()), Metrics(), MagicMock()
        said = LedgerAlerts(topology(), "tokyo", metrics, patience=0.0)
        believer = Believer(Rules.of(topology()), holdings.view, on_refused=said.refuse)
        heard: list[Any] = []
        book = MagicMock()
        book.passed_on = lambda log, drained: heard.append((log, drained))
        protocol = CustodyProtocol(holdings, book, sites=(), now=lambda: dt.datetime.now(dt.UTC), nonce=lambda: "n")
        protocol.learn = heard.append  # type: ignore[method-assign, assignment]
        protocol.claims.learn = heard.append  # type: ignore[method-assign, assignment]
        receiver = Receiver(
            MagicMock(),
            MagicMock(),
            protocol,
            (),
            believer,
            writers,
        )
        for offset, (site, entry) in enumerate(entries):
            receiver._apply_record(f"custody.{site}", Record(offset, 0, None, encode(entry), ()), True)  # noqa: SLF001
        self.alerts += said.new_alerts(believer.doubtful())
        return (*_of_view(holdings.view), heard), metrics.entries_refused


def replicator(entries: Sequence[Told_]) -> tuple[Any, int]:
    ledger = Ledger(topology(), "tokyo", PlanChanges())
    ledger._keep_given = True  # noqa: SLF001 - as where a link wants logs without past
    for offset, (site, entry) in enumerate(entries):
        tp = TP(f"custody.{site}")
        ledger._positions.setdefault(tp, 0)  # noqa: SLF001
        ledger._apply_whole(tp, FetchedPartition(0, -1, -1, 0, (), _batch(offset, encode(entry))))  # noqa: SLF001
    return (*_of_view(ledger.custody), dict(ledger.given), dict(ledger.returned)), ledger.refused + ledger.waiting


def commands(entries: Sequence[Told_]) -> tuple[Any, int]:
    told = tuple(Told(f"custody.{site}", offset, entry) for offset, (site, entry) in enumerate(entries))
    found = sifted(topology(), Ledgers("tokyo", (), (), frozenset(), told=told))
    return list(chains(found.entries)), len(found.refused)


def shore(entries: Sequence[Told_]) -> tuple[Any, int]:
    ledgers = [f"custody.{site}" for site, _ in entries]
    payloads = [encode(entry) for _, entry in entries]
    rows = pa.table({"log": ledgers, "log_offset": list(range(len(entries))), "payload": payloads})
    kinds = {name: str(site.kind) for name, site in topology().sites.items()}
    good = believed_of(rows, history_rules(kinds, {"BIGU": "containers", "YELU": "yellow"}))
    return list(chains(each.entry for each in good)), len(entries) - len(good)


READERS: dict[str, Callable[[], Reader]] = {
    "bridge": Edge,
    "replicator": lambda: replicator,
    "commands": lambda: commands,
    "shore": lambda: shore,
}


def _of_view(view: CustodyView) -> tuple[Any, ...]:
    logs = sorted(view.logs())
    return {log: view.grant(log) for log in logs}, {log: view.seizures(log) for log in view.seized()}, view.holders()


def _batch(offset: int, value: bytes) -> memoryview:
    batch = bytearray(encode_batch([NewRecord(value, timestamp_ms=0)], producer_id=-1, epoch=-1, sequence=-1))
    batch[:8] = offset.to_bytes(8, "big")
    return memoryview(batch)


@pytest.mark.parametrize("reader", READERS)
def test_what_honest_sites_write_is_believed_in_any_order(reader: str) -> None:
    known, complaints = READERS[reader]()(HONEST)
    assert complaints == 0
    turned, complaints = READERS[reader]()(HONEST[::-1])
    assert complaints == 0
    assert turned[0] == known[0]


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("reader", READERS)
def test_a_forged_entry_changes_nothing_whenever_it_comes(reader: str, forged: str) -> None:
    if reader == "shore" and forged in NOT_ACTED_ON_ASHORE:
        with_it, complaints = READERS[reader]()((*HONEST, ("star", FORGED[forged])))
        held = {chain.log: chain.holder for chain in with_it}
        assert (held, complaints) == ({ASHORE: "sydney", ABOARD: "tokyo", OUTSIDE: None}, 0)
        return
    alone, _ = READERS[reader]()(HONEST)
    for place in (len(HONEST), 3, 0):  # as news, amid the others, and before all that it contradicts
        read = READERS[reader]()
        entries = (*HONEST[:place], ("star", FORGED[forged]), *HONEST[place:])
        known, complaints = read(entries)
        assert known == alone
        assert complaints == 1
        if isinstance(read, Edge):
            (raised,) = read.alerts
            assert (raised.kind, raised.severity, raised.state) == (KIND, "CRITICAL", "OPENED")
            assert raised.vessel_imo_number == topology().sites["star"].imo
            (evidence,) = raised.evidence
            assert evidence.name == f"custody.star@{place}"
            assert FORGED[forged].log in evidence.detail


@pytest.mark.parametrize("reader", READERS)
def test_a_site_that_the_topology_does_not_have_is_believed_only_by_who_shows_the_past(reader: str) -> None:
    alone, _ = READERS[reader]()(HONEST)
    known, complaints = READERS[reader]()((*HONEST, ("atlantis", grant("atlantis", NEW, 1, "atlantis"))))
    assert (known == alone, complaints) == ((False, 0) if reader == "shore" else (True, 1))


@pytest.mark.parametrize("reader", READERS)
def test_what_ports_do_in_the_course_of_things_is_believed(reader: str) -> None:
    entries: list[Told_] = [
        *HONEST,
        (
            "head",
            grant(
                "head",
                ABOARD,
                18,
                "head",
                event="SEIZURE",
                from_site="star",
                marker_offset=15,
                drained={"strays.tokyo": 7},
            ),
        ),
        ("head", grant("head", ABOARD, 19, "star", event="HAND", marker_offset=16, drained={"strays.tokyo": 7})),
        ("star", grant("star", ABOARD, 20, "sydney", event="DISC", marker_offset=30, drained={"strays.star": 9})),
        ("tokyo", grant("tokyo", OUTSIDE, 3, "sydney", event="GTIN")),  # an answer to a claim
        ("sydney", claim("sydney")),
        ("sydney", grant("sydney", log(9), 7, "star")),  # its ledger has lost its beginning
        ("star", grant("star", log(9), 8, "tokyo", event="DISC")),
        ("star", returned("strays.star")),
    ]
    for given in (entries, entries[::-1]):
        _, complaints = READERS[reader]()(given)
        assert complaints == 0


def test_a_real_marker_is_accepted() -> None:
    real = msgspec.structs.replace(_TO_TOKYO, marker_batch=marker_of(_TO_TOKYO))
    for reader in READERS.values():
        assert reader()((*HONEST, ("star", real)))[1] == 0


def test_the_same_entries_raise_no_second_alert_after_a_restart() -> None:
    alerts: list[Alert] = []
    rules, view = Rules.of(topology()), CustodyView()

    def start(known: Sequence[Alert], *entries: LedgerEntry) -> None:
        said = LedgerAlerts(topology(), "tokyo", Metrics())
        for alert in known:
            said.restore(alert)
        believer = Believer(rules, view, on_refused=said.refuse)
        for offset, entry in enumerate(entries):
            assert not list(believer.hear(Told("custody.star", offset, entry)))
        alerts.extend(said.new_alerts(believer.doubtful()))

    first, second = FORGED["a new box opened at sea"], FORGED["a feed"]
    start((), first)
    start(tuple(alerts), first)
    assert [alert.state for alert in alerts] == ["OPENED"]
    start(tuple(alerts), first, second)
    assert [(alert.state, alert.revision) for alert in alerts] == [("OPENED", 0), ("UPDATED", 1)]
    assert alerts[0].alert_id == alerts[1].alert_id


_LONG = "\x01" * 100_000
LONG: dict[str, LedgerEntry] = {
    "a log": grant("star", f"containers.{_LONG}", 1, "star"),
    "an author": msgspec.structs.replace(_TO_TOKYO, granted_by=_LONG),
    "a giver": grant("star", ABOARD, 3, "tokyo", from_site=_LONG),
    "a receiver": grant("star", ASHORE, 19, _LONG, event="SEIZURE"),
    "a strays log": grant("star", ABOARD, 3, "tokyo", drained={f"strays.{_LONG}": 1}),
    "another order": msgspec.structs.replace(refusal(ABOARD), order_id=_LONG, refused_by="tokyo"),
}


@pytest.mark.parametrize("forged", LONG)
def test_an_alert_about_forged_entries_fits_in_its_log(forged: str) -> None:
    """Kafka refuses a record of more than 1 MiB, and a bridge that cannot store its alerts stops."""
    edge = Edge()
    edge((*HONEST, *[("star", LONG[forged])] * 8))
    [alert] = edge.alerts
    assert len(alert.evidence) == 8 and len(encode(alert)) < 200_000


def test_waiting_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topologies.ledger_trust.MOST_WAITING", 3)
    refused: list[Any] = []
    believer = Believer(Rules.of(topology()), CustodyView(), on_refused=refused.append)
    for n in range(5):
        assert not list(believer.hear(Told("custody.star", n, grant("star", log(50 + n), 9, "tokyo"))))
    assert (len(believer), len(refused)) == (3, 2)


def test_the_strays_of_a_ship_are_for_boxes_that_were_given_to_it() -> None:
    view = CustodyView()
    believer = Believer(Rules.of(topology()), view, on_refused=lambda refused: None)
    assert believer.trusts_strays("strays.tokyo", log(1))
    assert not believer.trusts_strays("strays.star", log(1))
    opened = grant("tokyo", log(1), 1, "tokyo", from_site=None, event="GTIN")
    for entry in (opened, grant("tokyo", log(1), 2, "star"), grant("star", log(1), 3, "tokyo")):
        for told in believer.hear(Told(f"custody.{entry.granted_by}", entry.term, entry)):
            assert isinstance(told.entry, CustodyEntry)
            view.apply(told.entry)
    assert view.holder(log(1)) == "tokyo"
    assert believer.trusts_strays("strays.star", log(1))
    assert not believer.trusts_strays("strays.star", log(2))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[LedgerEntry]:
    """The entries that are judged, each as often as it is."""
    found: list[LedgerEntry] = []
    judge = Rules.doubt

    def doubt(self: Rules, ledger: str, entry: LedgerEntry, view: CustodyView, aboard: Any) -> Any:
        found.append(entry)
        return judge(self, ledger, entry, view, aboard)

    monkeypatch.setattr(Rules, "doubt", doubt)
    return found


def test_news_of_a_log_has_only_those_entries_judged_anew_that_it_may_clear(judged: list[LedgerEntry]) -> None:
    """A forger can have very many wait in the log of one box, which moves on meanwhile."""
    view, box = CustodyView(), log(1)
    believer = Believer(Rules.of(topology()), view, on_refused=lambda refused: None)
    forged = [
        *(grant("star", box, 1000 + n, "tokyo") for n in range(500)),
        *(grant("star", box, 20 + n, "star", event="SEIZURE") for n in range(500)),
    ]
    for n, entry in enumerate(forged):
        assert not list(believer.hear(Told("custody.star", n, entry)))
    honest = [grant("tokyo", box, 1, "tokyo", from_site=None, event="GTIN")]
    for term in range(2, 101):
        one, other = ("tokyo", "sydney") if term % 2 == 0 else ("sydney", "tokyo")
        honest.append(grant(one, box, term, other))
    for entry in honest:
        for told in believer.hear(Told(f"custody.{entry.granted_by}", entry.term, entry)):
            assert isinstance(told.entry, CustodyEntry)
            view.apply(told.entry)
    assert view.term(box) == 100
    refused = 100 - 3  # seizures whose ground, 16 terms before, is known by now
    assert len(believer) == 1000 - refused
    assert len(judged) == len(forged) + len(honest) + refused


@pytest.mark.parametrize("old", ["grant", "refusal"])
def test_news_that_changes_nothing_has_no_entries_judged_anew(judged: list[LedgerEntry], old: str) -> None:
    """A forger writes such news itself, as often as it likes."""
    view, box, term = CustodyView(), log(1), 50 if old == "grant" else 0
    believer = Believer(Rules.of(topology()), view, on_refused=lambda refused: None)
    if old == "grant":
        newest = grant("tokyo", box, 100, "tokyo")
        for _ in believer.hear(Told("custody.tokyo", 0, newest)):
            view.apply(newest)
    for n in range(500):
        assert not list(
            believer.hear(Told("custody.star", n, grant("star", box, term + SEIZING_TERMS, "star", event="SEIZURE")))
        )
    judged.clear()
    for n in range(50):
        news: LedgerEntry = grant("star", box, term, "tokyo", event="LOAD") if old == "grant" else refusal(box)
        assert [told.entry for told in believer.hear(Told("custody.star", 500 + n, news))] == [news]
    assert (len(judged), len(believer)) == (50, 500)


def test_entries_that_waited_are_believed_in_the_order_of_their_terms() -> None:
    """Whatever is heard last, the whole chain follows: grants by ships, and a seizure of a ship's term."""
    view, box = CustodyView(), log(1)
    chain = [
        grant("tokyo", box, 1, "tokyo", from_site=None, event="GTIN"),
        grant("tokyo", box, 2, "star"),
        grant("star", box, 2 + SEIZING_TERMS, "star", event="SEIZURE"),
        *(grant("star", box, 2 + SEIZING_TERMS + n, "star") for n in range(1, 4)),
    ]
    believer = Believer(Rules.of(topology()), view, on_refused=lambda refused: None)
    terms = []
    for entry in reversed(chain):
        for told in believer.hear(Told(f"custody.{entry.granted_by}", 100 - entry.term, entry)):
            assert isinstance(told.entry, CustodyEntry)
            view.apply(told.entry)
            terms.append(told.entry.term)
    assert terms == [*(entry.term for entry in chain[1:]), 1]
    assert len(believer) == 0


def test_entries_that_wait_are_not_judged_anew_at_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forger can have very many wait, and their markers take long to decode."""
    judged: list[str] = []
    judge = Rules.doubt

    def doubt(self: Rules, ledger: str, entry: LedgerEntry, view: CustodyView, aboard: Any) -> Any:
        judged.append(ledger)
        return judge(self, ledger, entry, view, aboard)

    monkeypatch.setattr(Rules, "doubt", doubt)
    said = LedgerAlerts(topology(), "tokyo", Metrics(), patience=0.0)
    believer = Believer(Rules.of(topology()), CustodyView(), on_refused=said.refuse)
    for n in range(5):
        assert not list(believer.hear(Told("custody.star", n, grant("star", log(50 + n), 9, "tokyo"))))
    assert len(judged) == 5
    [alert] = said.new_alerts(believer.doubtful())
    assert [each.name for each in alert.evidence] == [f"custody.star@{n}" for n in range(5)]
    assert "no term is known" in alert.evidence[0].detail
    assert len(judged) == 5
