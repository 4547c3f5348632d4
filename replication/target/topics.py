"""Keep the list of the target's topics between two listings. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fairlead.kafka.client.metadata import TopicChanges


class TargetTopics(dict[str, int]):
    """The target's topics with their numbers of partitions: as listed, and those created since then."""

    def __init__(self) -> None:
        super().__init__()
        self._created: dict[str, int] = {}  # topics that no listing has had, and how many there were since

    def create(self, topics: Mapping[str, int], created: Collection[str]) -> None:
        """Note topics that the target has now. This process has just ``created`` some of them: a later listing must
        have these. The others existed, and no later listing needs to differ for them."""
        self._created.update(dict.fromkeys(set(created) - self.keys(), 0))
        self.update(topics)

    def forget(self, topic: str) -> None:
        """Note that a topic was deleted."""
        self.pop(topic, None)
        self._created.pop(topic, None)

    def apply_listing(self, found: TopicChanges | None) -> tuple[set[str], set[str]]:
        """Apply what a listing has changed, None for nothing. The first one after a creation may not have it yet.

        Returns:
            The topics that are new, and those that are gone.
        """
        listed = {topic: len(info.partitions) for topic, info in found.topics.items()} if found is not None else {}
        for topic in listed:
            self._created.pop(topic, None)
        gone = {topic for topic, listings in self._created.items() if listings}
        self._created = dict.fromkeys(self._created, 1)
        if found is not None:
            gone |= found.lost(self.keys()) - self._created.keys()
        for topic in gone:
            self.forget(topic)
        new = listed.keys() - self.keys()
        self.update(listed)
        return new, gone
