"""Logs whose holder changes are copied in both directions, and logs that the target holds are left alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from fairlead.kafka.convention import term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry
from replication.replicator import Replicator
from tests.support.replication.lab import NOW_MS, WHEN, Lab, counted, records, states, until
from topologies.model import Topology

pytestmark = pytest.mark.integration


@dataclass
class Ledgers:
    """Sites that only this test uses, each with its own ledger, at alpha's and beta's brokers."""

    lab: Lab
    ends: dict[str, int]

    def name(self, site: str) -> str:
        return f"custody.{self.site(site)}"

    def site(self, at: str) -> str:
        return f"{self.lab.stream}-{at}"

    def replicator(self, at: str, selection: str = "all") -> Replicator:
        def kafka(site: str) -> KafkaEndpoint:
            return replace(self.lab.kafka(site.rpartition("-")[2]), site=site)

        site = self.site(at)
        return Replicator(self.topology(selection), site, kafka(site), kafka)

    def topology(self, selection: str = "all") -> Topology:
        return self.lab.topology(
            sites={self.site(at): {"kind": "datacentre"} for at in ("alpha", "beta")},
            streams={
                self.lab.stream: {"insert_point": "moves", "owners": ["BIGU"]},
                "custody": {"priority": "control"},
            },
            links=[
                {
                    "from": self.site(source),
                    "to": self.site(target),
                    "streams": {self.lab.stream: selection, "custody": [self.site(source)]},
                }
                for source, target in (("alpha", "beta"), ("beta", "alpha"))
            ],
        )

    async def open(self) -> None:
        for site in ("alpha", "beta"):
            await self.lab.make(site, self.name(site))
            self.ends[site] = await self.lab.open_term(site, self.name(site), term=1, at=0)

    async def grant(self, site: str, topic: str, *, term: int, at: int, to: str) -> int:
        """Append the marker of a term at ``site`` and enter it in the site's ledger; return the log's end."""
        end = await self.lab.open_term(site, topic, term=term, at=at)
        entry = CustodyEntry(
            log=topic,
            term=term,
            marker_offset=at,
            from_site=None if term == 1 else self.site(site),
            to_site=self.site(to),
            event="HAND",
            event_id=f"{topic}-{term}",
            event_date_time=WHEN,
            granted_date_time=WHEN,
            granted_by=self.site(site),
            marker_batch=b"",
        )
        at_ledger = self.ends[site]
        batch = term_batch([NewRecord(encode(entry), timestamp_ms=NOW_MS)], term=1, offset=at_ledger, marker=0)
        await self.lab.append(site, {self.name(site): batch})
        self.ends[site] += 1
        return end


@pytest.fixture
async def ledgers(lab: Lab) -> Ledgers:
    made = Ledgers(lab, {})
    await made.open()
    return made


async def test_handed_over_and_back_the_copies_stay_identical(lab: Lab, ledgers: Ledgers) -> None:
    """After custody has passed to another site and back, the copies are identical."""
    topic = lab.log("BIGU1234560")
    await lab.make("alpha", topic)
    both = [ledgers.replicator(site) for site in ("alpha", "beta")]
    async with lab.running(*both):
        end = await ledgers.grant("alpha", topic, term=1, at=0, to="alpha")
        end = await lab.write("alpha", topic, 20, at=end)
        holder, other = "alpha", "beta"
        for term in range(2, 6):
            marker = end
            end = await ledgers.grant(holder, topic, term=term, at=marker, to=other)
            holder, other = other, holder
            await lab.reaches(holder, topic, end)
            end = await lab.write(holder, topic, 13, term=term, marker=marker, at=end, per=4)
        for site in ("alpha", "beta"):
            await lab.reaches(site, topic, end)
        assert await lab.same(topic)
        assert [states(each.snapshot()) for each in both] == [{}, {}]
        alpha, beta = ledgers.site("alpha"), ledgers.site("beta")
        # Alpha wrote the markers of terms 1, 2 and 4 and the records of terms 1, 3 and 5; beta the rest.
        moved = {
            f"{alpha}->{beta}": 3 + 20 + 13 + 13 + ledgers.ends["alpha"],
            f"{beta}->{alpha}": 2 + 13 + 13 + ledgers.ends["beta"],
        }
        await counted(both, moved)


async def test_a_late_receiver_gets_everything_up_to_the_marker(lab: Lab, ledgers: Ledgers) -> None:
    """A site that receives custody late still copies everything up to the marker.

    The ledger arrives before the log: the site already holds the log, and still needs its earlier records.
    """
    topic = lab.log("BIGU1234560")
    await lab.make("alpha", topic)
    end = await ledgers.grant("alpha", topic, term=1, at=0, to="alpha")
    end = await lab.write("alpha", topic, 50, at=end)
    end = await ledgers.grant("alpha", topic, term=2, at=end, to="beta")
    beta = ledgers.replicator("beta", "aboard")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)
        assert await lab.same(topic)


async def test_only_what_is_aboard_is_taken(lab: Lab, ledgers: Ledgers) -> None:
    """A ship copies only the logs of boxes aboard."""
    aboard, ashore = lab.log("BIGU1234560"), lab.log("BIGU7654322")
    await lab.make("alpha", aboard, ashore)
    ends = {topic: await ledgers.grant("alpha", topic, term=1, at=0, to="alpha") for topic in (aboard, ashore)}
    beta = ledgers.replicator("beta", "aboard")
    async with lab.running(beta):
        await lab.reaches("beta", ledgers.name("alpha"), ledgers.ends["alpha"])
        assert await lab.end("beta", aboard) == -1
        end = await ledgers.grant("alpha", aboard, term=2, at=ends[aboard], to="beta")
        await lab.reaches("beta", aboard, end)
        assert await lab.end("beta", ashore) == -1


async def test_the_target_never_overwrites_what_it_holds(lab: Lab, ledgers: Ledgers) -> None:
    """If beta holds a log and alpha has a longer log of the same name, nothing of alpha's reaches beta."""
    by_custody, control = lab.log("BIGU1234560"), lab.log("BIGU7654322")
    await lab.make("alpha", by_custody, control)
    await lab.make("beta", by_custody)
    end = await ledgers.grant("beta", by_custody, term=1, at=0, to="beta")
    end = await lab.write("beta", by_custody, 5, at=end)
    await lab.append("alpha", {by_custody: term_batch(records(0, 30), term=1, offset=0, marker=0)})
    await lab.write("alpha", control, 5, at=await lab.open_term("alpha", control, term=1, at=0))
    before = await lab.stored("beta", by_custody)
    beta = ledgers.replicator("beta")
    async with lab.running(beta):
        await lab.reaches("beta", control, 6)
        assert await lab.stored("beta", by_custody) == before


async def test_a_fixed_log_of_the_target_is_not_pulled(lab: Lab) -> None:
    own, control = lab.log("beta.own"), lab.log("alpha.other")
    await lab.make("alpha", own, control)
    await lab.make("beta", own)
    await lab.append("alpha", {own: term_batch(records(0, 30), term=1, offset=0, marker=0)})
    await lab.write("alpha", control, 5, at=await lab.open_term("alpha", control, term=1, at=0))
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", control, 6)
        assert await lab.end("beta", own) == 0


async def test_another_history_is_named_and_the_other_logs_go_on(lab: Lab) -> None:
    """A log with another history is reported, and the other logs are still copied."""
    split, fine = lab.log("alpha.split"), lab.log("alpha.fine")
    for site in ("alpha", "beta"):
        await lab.make(site, split)
        await lab.write(site, split, 5, at=await lab.open_term(site, split, term=1, at=0))
    await lab.make("alpha", fine)
    end = await lab.open_term("alpha", fine, term=1, at=0)
    # Alpha continues in term 1; beta's copy has a later term that alpha does not know.
    await lab.write("alpha", split, 5, at=6)
    await lab.open_term("beta", split, term=2, at=6)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", fine, end)

        async def named() -> bool:
            return states(beta.snapshot()).get(split) == "diverged"

        await until(named, f"not named: {beta.snapshot()['logs']}")
        assert await lab.end("beta", split) == 7
        trouble = beta.snapshot()["logs"][split]
        assert trouble["cause"] and trouble["what_to_do"] and trouble["since"]
        assert await lab.write("alpha", fine, 5, at=end)
        await lab.reaches("beta", fine, end + 5)


async def test_a_difference_below_the_end_is_noticed_before_anything_is_appended(lab: Lab) -> None:
    topic = lab.log("alpha.one")
    for site, first in (("alpha", 0), ("beta", 100)):
        await lab.make(site, topic)
        await lab.append(site, {topic: term_batch(records(first, 5), term=1, offset=0, marker=0)})
    await lab.write("alpha", topic, 5, at=5)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):

        async def named() -> bool:
            return states(beta.snapshot()).get(topic) == "diverged"

        await until(named, f"not named: {beta.snapshot()['logs']}")
        assert "offsets 0..4" in beta.snapshot()["logs"][topic]["cause"]
    assert await lab.end("beta", topic) == 5
