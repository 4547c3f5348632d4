"""Check all invariants of docs/custody.md in a model world that has come to rest."""

from __future__ import annotations

from edge.messages import MessageId
from fairlead.records.custody import Marker
from tests.unit.edge.custody.model.disk import Rec, Violation
from tests.unit.edge.custody.model.model import World


def check(world: World) -> None:
    """Raise ``Violation`` for the first invariant that does not hold."""
    for disk in world.disks:
        _require(not disk.queue, f"I2: {disk.queue} was never acknowledged at {disk.site}")
    for log in world.logs:
        copies = [disk.copies[log].records for disk in world.disks]
        for site, copy in zip(world.sites, copies, strict=True):
            _require(copy == copies[0], f"I1: {log} differs: {world.sites[0]} {copies[0]}, {site} {copy}")
        _each_once(world, log, copies[0])
        _device_order(log, copies[0])
        _terms(world, log, copies[0])
    _events(world)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


def _each_once(world: World, log: str, records: list[Rec]) -> None:
    there = [record.body for record in records if isinstance(record.body, MessageId)]
    wanted = {identity for name, identity in world.published if name == log}
    _require(len(there) == len(set(there)), f"I4: {log} has a reading twice: {sorted(there)}")
    _require(set(there) == wanted, f"I2: {log} lacks {wanted - set(there)}, has too much {set(there) - wanted}")


def _device_order(log: str, records: list[Rec]) -> None:
    newest: dict[str, MessageId] = {}
    for record in records:
        body = record.body
        if not isinstance(body, MessageId):
            continue
        known = newest.get(body.device)
        _require(
            record.late == (known is not None and body < known),
            f"I3: {log}: {body} after {known} {'is marked' if record.late else 'is not marked'} late",
        )
        if not record.late:
            newest[body.device] = body


def _terms(world: World, log: str, records: list[Rec]) -> None:
    entries = {entry.term: entry for entry in world.entries if entry.log == log}
    term, sequence = 0, -1
    for offset, record in enumerate(records):
        body = record.body
        if isinstance(body, Marker):
            _require(record.term > term and body.term == record.term, f"I5: {log}: term {record.term} after {term}")
            term, sequence = record.term, 0
            entry = entries.get(term)
            following = records[offset + 1].body if offset + 1 < len(records) else None
            superseded = isinstance(following, Marker) and following.event == "SEIZURE"
            _require(entry is not None or superseded, f"I6: term {term} of {log} has no entry")
            _require(entry is None or entry.marker_offset == offset, f"I6: {log}: {entry} is at {offset}")
        else:
            sequence += 1
        _require((record.term, record.sequence) == (term, sequence), f"I5: {log}: {record} at {offset} in term {term}")
    for entry in entries.values():
        cut = any(each.event == "SEIZURE" and each.term > entry.term for each in entries.values())
        _require(cut or records[entry.marker_offset].term == entry.term, f"I6: {entry} is not in {log}")


def _events(world: World) -> None:
    """Check that each event changed custody, is a dead letter of its site, waits where it arrived, or had nothing to
    change.
    """
    for number, event in world.events:
        disk, bridge = world.disks[number], world.bridges[number]
        waits = bridge is not None and event in bridge.waiting.get(event.log, ())
        newest = world.newest(event.log)
        held = newest is not None and newest.to_site == disk.site
        _require(not waits or not held, f"I7: {event} still waits at the holder {disk.site}")
        entries = [entry for entry in world.entries if entry.log == event.log]
        moved = any(entry.event_id == event.event_id for entry in entries)
        later = any(entry.event_date_time > event.at for entry in entries)
        nothing = event.event == "GTIN" or event.to_site == disk.site
        done = event.event_id in disk.events and (moved or later or nothing)
        refused = event.event_id in disk.letters
        _require(waits or done or refused, f"I7: {event} is forgotten at {disk.site}")
        _require(later or not refused, f"I7: {event} was refused at {disk.site}, and nothing has overtaken it")
    for disk in world.disks:
        for order in disk.orders:
            _require(order.transfer.event_id in disk.answered, f"I7: {order} has no answer")
