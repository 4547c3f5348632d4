"""The fetch session with one leader (KIP-227) as a value: what the broker was told, and what it has to be told next."""

from __future__ import annotations

from fairlead.wire.fetch_codec import EPOCH_OPEN, NO_SESSION, FetchAnswer, Wanted
from fairlead.wire.types import TP

Partition = tuple[bytes, int]  # (topic id, partition number)


class BrokerSession:
    """One session. No I/O."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = EPOCH_OPEN
        self.logs: dict[TP, Partition] = {}
        self.names: dict[Partition, TP] = {}
        self.sent: dict[Partition, int] = {}  # what the broker knows, with the offset it was told
        self._pending: dict[TP, None] = {}
        self._forgotten: dict[Partition, None] = {}

    def add(self, log: TP, topic_id: bytes) -> None:
        """Follow ``log``, which is not followed."""
        key = topic_id, log.partition
        self.logs[log] = key
        self.names[key] = log
        self._pending[log] = None
        self._forgotten.pop(key, None)

    def move(self, log: TP) -> None:
        """The log's position changed."""
        self._pending[log] = None

    def remove(self, log: TP) -> None:
        """Follow ``log`` no longer."""
        key = self.logs.pop(log, None)
        if key is None:
            return
        self.names.pop(key, None)
        self._pending.pop(log, None)
        if key in self.sent:
            self._forgotten[key] = None

    @property
    def has_changes(self) -> bool:
        """Whether the broker would be told something new by the next request."""
        return bool(self._pending or self._forgotten)

    def next_request(self, offsets: dict[TP, int]) -> tuple[list[Wanted], list[Partition]]:
        """What to send now; counts as sent."""
        if self.epoch == EPOCH_OPEN:
            changed = list(self.logs)
            self.sent.clear()
            self._forgotten.clear()
        else:
            changed = [log for log in self._pending if self.sent.get(self.logs[log]) != offsets[log]]
        self._pending.clear()
        forgotten = list(self._forgotten)
        self._forgotten.clear()
        for key in forgotten:
            del self.sent[key]
        wanted = []
        for log in changed:
            key = self.logs[log]
            self.sent[key] = offset = offsets[log]
            wanted.append(Wanted(*key, offset))
        return wanted, forgotten

    def answered(self, answer: FetchAnswer) -> None:
        """Take over id and epoch from a good answer; id 0 means that the broker keeps no session (any more)."""
        if answer.session_id == NO_SESSION:
            self.reset(NO_SESSION)
        elif self.epoch == EPOCH_OPEN:
            self.session_id, self.epoch = answer.session_id, 1
        else:
            self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1

    def reset(self, session_id: int) -> None:
        """Begin anew with the full list; a session whose id is given is closed by that."""
        self.session_id, self.epoch = session_id, EPOCH_OPEN
