"""The model's world: sites with bridges, links between them, boxes that move, and an observer that sees everything."""

from __future__ import annotations

from itertools import permutations
from typing import Final

from edge.custody.protocol import Transfer
from edge.logwriter.dedup import MAX_BOOTS
from edge.messages import MessageId
from fairlead.custody.view import SEIZING_TERMS
from fairlead.records.custody import CustodyEntry, Marker
from tests.unit.edge.custody.model.bridge import Bridge
from tests.unit.edge.custody.model.disk import PORTS, SITES, Copy, Disk, Message, Order, Rec, Violation, moment
from tests.unit.edge.custody.model.links import Links

MOST_GRANTS: Final = SEIZING_TERMS - 2  # of one log; a lost holder makes no more unseen grants
MOST_BOOTS: Final = MAX_BOOTS - 2  # boots of one device: a log remembers no more
ROUNDS: Final = 200


class World:
    """The whole model. Each action takes one number, from which it chooses; ``changes`` counts writes anywhere."""

    def __init__(self, sites: int = 3, logs: int = 1, *, restarts: bool = True) -> None:
        self.restarts = restarts  # whether every bridge restarts before the world comes to rest
        self.sites = SITES[:sites]
        self.logs = tuple(f"containers.big-blue.BBLU{number}" for number in range(logs))
        self.clock = self.changes = self._nonces = 0
        self.disks = [Disk(site, self.sites) for site in self.sites]
        self.bridges: list[Bridge | None] = []
        self.zombies: list[Bridge | None] = [None] * sites
        self.sessions: dict[Disk, Bridge] = {}
        for disk in self.disks:
            disk.copies = {log: Copy() for log in self.logs}
            self.bridges.append(Bridge(self, disk))
        self.links = Links(self, list(permutations(range(sites), 2)))
        self.markers: dict[tuple[str, int], Marker] = {}
        self.entries: list[CustodyEntry] = []
        self.published: set[tuple[str, MessageId]] = set()
        self.events: list[tuple[int, Transfer]] = []
        self.troubles = 0  # number of retriable errors from brokers
        self.passed_on = 0  # how often another site drained a log's strays while this one was working on the log
        self.grants = dict.fromkeys(self.logs, 0)
        self.place = {log: number % 2 for number, log in enumerate(self.logs)}
        self._seen: dict[tuple[str, int], list[Rec]] = {}
        self._began: dict[tuple[str, int], int] = {}  # offset of each term's marker at the site that wrote it
        self._writers: dict[tuple[str, int], str] = {}
        self._sequences: dict[str, tuple[int, int]] = {}
        for log in self.logs:
            self._event("GTIN", log, self.place[log], self.place[log])

    # -- devices, boxes and operators

    def publish(self, n: int) -> None:
        """Publish a reading to the site of the box, to another site that receives it, or to both."""
        n, log = self._log(n)
        n, which = divmod(n, 4)
        n, wrong = divmod(n, 4)
        n, elsewhere = divmod(n, len(self.sites))
        n, twice = divmod(n, 6)
        n, reboot = divmod(n, 12)
        device = f"{log}/{which // 3}"
        boot, sequence = self._sequences.get(device, (0, 0))
        self._sequences[device] = (boot + 1, 1) if reboot == 0 and boot < MOST_BOOTS else (boot, sequence + 1)
        identity = MessageId(device, boot, sequence)
        site = elsewhere if wrong == 0 else self.place[log]
        self.published.add((log, identity))
        self.changes += 1
        for number in {site, elsewhere if twice == 0 else site}:
            self.disks[number].queue.append(Message(log, identity))

    def move(self, n: int) -> None:
        """Load a box, discharge it, or move it out of or into the system; sometimes the event is a mistake."""
        n, log = self._log(n)
        n, to = divmod(n, len(self.sites))
        n, out = divmod(n, 6)
        n, mistaken = divmod(n, 8)
        place = self.place[log]
        if self.grants[log] >= MOST_GRANTS:
            return
        if mistaken == 0:
            if n % 3 == 0:
                self._gate_in(log, to % 2)
            else:
                self._event("LOAD", log, n % len(self.sites), to)
        elif out == 0 and place < 2:
            self._event("GTOT", log, place, None)
            self.place[log] = to % 2
            self._gate_in(log)
        elif out == 1 and place < 2:
            self._gate_in(log)
        elif to != place:
            self._event("LOAD", log, place, to)
            self.place[log] = to

    def _gate_in(self, log: str, port: int | None = None) -> None:
        """Publish a gate-in of the box, at its place or by mistake elsewhere, but only where the box is known.

        Two ports that both open a log for a new box are a split, which the protocol reports and does not repair.
        """
        place = self.place[log] if port is None else port
        disk = self.disks[place]
        entries = (entry for ledger in disk.ledgers.values() for entry in ledger)
        named = any(isinstance(entry, CustodyEntry) and entry.log == log for entry in entries)
        if named or disk.copies[log].records:  # the copy may be here before the entry that names it
            self._event("GTIN", log, place, place)

    def newest(self, log: str) -> CustodyEntry | None:
        """Return the entry with the highest term in any ledger."""
        return max((each for each in self.entries if each.log == log), key=lambda each: each.term, default=None)

    def order(self, n: int) -> None:
        """Order a grant or a seizure by hand; a seizure only when the site knows all earlier seizures of the log."""
        n, log = self._log(n)
        n, site = divmod(n, len(self.sites))
        n, to = divmod(n, len(self.sites))
        n, kind = divmod(n, 2)
        disk = self.disks[site]
        if self.grants[log] >= MOST_GRANTS:
            return
        if kind == 0:
            known = {term for term, _ in disk.seizures.get(log, ())} | {each.term for each in disk.copies[log].records}
            made = {term for (name, term), each in self.markers.items() if name == log and each.event == "SEIZURE"}
            if made <= known and not self._seizing(log):
                self.order_seizure(log, site)
        elif to != site:
            self.order_grant(log, site, to=to)

    def order_seizure(self, log: str, site: int) -> None:
        self._order("SEIZURE", log, self.disks[site], self.sites[site])

    def order_grant(self, log: str, site: int, *, to: int) -> None:
        self._order("HAND", log, self.disks[site], self.sites[to])

    def _seizing(self, log: str) -> bool:
        return any(
            order.transfer.event == "SEIZURE"
            and order.transfer.log == log
            and order.transfer.event_id not in disk.answered
            for disk in self.disks
            for order in disk.orders
        )

    def _order(self, kind: str, log: str, disk: Disk, to: str) -> None:
        terms = [
            entry.term
            for ledger in disk.ledgers.values()
            for entry in ledger
            if isinstance(entry, CustodyEntry) and entry.log == log
        ]
        disk.orders.append(Order(self._transfer(kind, log, to), max(terms, default=None)))

    def _event(self, kind: str, log: str, site: int, to: int | None) -> None:
        move = self._transfer(kind, log, None if to is None else self.sites[to])
        if move.to_site == self.sites[site] and kind != "GTIN":
            return
        self.events.append((site, move))
        self.disks[site].queue.append(Message(log, move))

    def _transfer(self, kind: str, log: str, to: str | None) -> Transfer:
        self.clock += 1
        self.changes += 1
        self.grants[log] += 1
        return Transfer(log, kind, f"event-{self.clock}", moment(self.clock), to)  # type: ignore[arg-type]

    def _log(self, n: int) -> tuple[int, str]:
        n, log = divmod(n, len(self.logs))
        return n, self.logs[log]

    # -- bridge processes

    def work(self, n: int) -> None:
        """Let one bridge, or an old one that still runs, take some steps; choose the next that has something to do."""
        n, site = divmod(n, len(self.sites))
        n, zombie = divmod(n, 3)
        n, choice = divmod(n, len(self.logs) + 2)
        steps = 1 + n % 12
        for turn in range(len(self.sites)):
            number = (site + turn) % len(self.sites)
            bridge = self.zombies[number] if zombie == 0 else None
            bridge = bridge or self.bridges[number] or self._start(number)
            if bridge.run(choice, steps):
                return

    def fail(self, n: int) -> None:
        """Crash a bridge, restart it, or start a second one while the first is only suspended.

        Or make its broker answer the next requests with retriable errors.
        """
        n, site = divmod(n, len(self.sites))
        bridge = self.bridges[site]
        if n % 4 == 3:
            self.disks[site].trouble = 1 + n // 4 % 3
            self.changes += 1
        elif bridge is None:
            self._start(site)
        elif n % 3 == 0 and self.zombies[site] is None:
            self.zombies[site] = bridge
            self._start(site)
        else:
            self.crash(site)

    def crash(self, site: int) -> None:
        bridge = self.bridges[site]
        if bridge is not None:
            self.died(bridge)

    def _start(self, site: int) -> Bridge:
        bridge = self.bridges[site] = Bridge(self, self.disks[site])
        return bridge

    def died(self, bridge: Bridge) -> None:
        bridge.alive = False
        self.changes += 1
        for running in (self.bridges, self.zombies):
            for number, each in enumerate(running):
                if each is bridge:
                    running[number] = None
        if self.sessions.get(bridge.disk) is bridge:
            del self.sessions[bridge.disk]

    def connected(self, bridge: Bridge) -> None:
        """Give the MQTT session to a bridge that has started; the MQTT broker sends unacknowledged messages again."""
        self.changes += 1
        self.sessions[bridge.disk] = bridge
        for message in bridge.disk.queue:
            message.again |= message.delivered
            message.delivered = False

    # -- actions of bridges and replicators, as an observer sees them

    def nonce(self) -> str:
        self._nonces += 1
        return str(self._nonces)

    def acknowledge(self, bridge: Bridge, message: Message) -> None:
        if self.sessions.get(bridge.disk) is not bridge or message not in bridge.disk.queue:
            return
        self.changes += 1
        bridge.disk.queue.remove(message)
        if isinstance(message.body, MessageId) and not bridge.disk.keeps(message.log, message.body):
            raise Violation(f"I2: {message.body} of {message.log} was acknowledged and is nowhere at {bridge.site}")

    def append(self, disk: Disk, log: str, record: Rec) -> int:
        """Append to the copy of a bridge's site; raises ``Refused``."""
        offset = disk.copies[log].append(record)
        self.changes += 1
        if isinstance(record.body, MessageId):
            writer = self._writers.setdefault((log, record.term), disk.site)
            if writer != disk.site:
                raise Violation(f"I5: {writer} and {disk.site} both appended to {log} in term {record.term}")
        self.seen(log, offset, record)
        return offset

    def seen(self, log: str, offset: int, record: Rec) -> None:
        """Record that a record is at an offset. Another record there is allowed only beyond a seizure (I1)."""
        began = self._began.setdefault((log, record.term), offset - record.sequence)
        there = self._seen.setdefault((log, offset), [])
        if record in there or began != offset - record.sequence:
            return  # the second case: a copy in which a seizure's marker follows a record of the lost holder
        for other in there:
            older, newer = sorted((record.term, other.term))
            if not any(
                marker.event == "SEIZURE" and older < term and (term <= newer or self._cut_off(log, term, offset))
                for (name, term), marker in self.markers.items()
                if name == log
            ):
                raise Violation(f"I1: {log} has two records at offset {offset}: {record} and {other}")
        there.append(record)

    def _cut_off(self, log: str, term: int, offset: int) -> bool:
        """Return whether a seizure cuts off both records: a bridge that slept appended to a copy being rebuilt."""
        return self._began.get((log, term), offset + 1) <= offset

    def entered(self, entry: CustodyEntry) -> None:
        for other in self.entries:
            if (other.log, other.term) == (entry.log, entry.term) and other.event_id != entry.event_id:
                raise Violation(f"I5: {other} and {entry} grant the same term")
        self.entries.append(entry)

    # -- the end

    def settle(self) -> None:
        """Repair everything and run until nothing more happens."""
        self.links.heal()
        for number, zombie in enumerate(self.zombies):
            self.disks[number].trouble = 0
            if zombie is not None:
                self.died(zombie)
            bridge = self.bridges[number]
            if self.restarts or bridge is None or bridge.starting is not None or bridge.is_overtaken():
                self.crash(number)  # one that starts may have read the strays before the other bridge kept its last
            else:
                self.connected(bridge)  # a second bridge may have taken the session from it
        before = -1
        for _ in range(ROUNDS):
            if before == self.changes and not (self._reopen() or self._give_to_keepers()):
                return
            before = self.changes
            for number in range(len(self.sites)):
                bridge = self.bridges[number] or self._start(number)
                for turn in range(200):
                    if not bridge.run(turn, 50):
                        break
            self.links.all()
        raise Violation("the world does not come to rest")

    def _reopen(self) -> bool:
        """Bring in a box that is outside, so that its waiting readings are drained."""
        again = False
        for log in self.logs:
            newest = self.newest(log)
            if newest is None or newest.to_site is None:
                self.place[log] %= 2
                self._gate_in(log)
                again = True
        return again

    def _give_to_keepers(self) -> bool:
        """Order a grant to a ship that keeps readings of a log that it was never given: only then are they drained."""
        for log in self.logs:
            newest = self.newest(log)
            if newest is None or newest.to_site is None:
                continue
            given = {entry.to_site for entry in self.entries if entry.log == log}
            holder = self.sites.index(newest.to_site)
            has = self.disks[holder].copies[log].has
            for number, site in enumerate(self.sites):
                kept = {each.body for each in self.disks[number].strays[site] if each.log == log}
                if site not in (*PORTS, *given) and {body for body in kept if isinstance(body, MessageId)} - has:
                    self.order_grant(log, holder, to=number)
                    return True
        return False
