"""Ways to get the protocol wrong, each planted to see that the search finds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Faults:
    """All off: the protocol as it is in docs/custody.md."""

    fence_off: bool = False  # brokers look neither at terms nor at sequences
    appends_after_granting: bool = False
    entry_without_offset: bool = False  # the receiver takes its own copy's end for it
    drain_repeats: bool = False  # markers do not say what was drained, and the log's past is not looked at
    seizes_next_term: bool = False  # one above the last known term, not 16
    return_throws_tail_away: bool = False
    acknowledges_first: bool = False
    no_completion: bool = False
    seizure_drained_by_ledger: bool = False  # `drained` of the newest entry, not of the newest marker in the own copy
    strays_not_reread: bool = False  # after a seizure the memory of strays stays as it was
    waiting_by_drained: bool = False  # events before `drained` are not looked for after a restart
    only_strays_are_late: bool = False  # a reading that is appended directly is never marked
    late_counts_as_beyond: bool = False  # what is newer than the late records remembered is taken for new
    returns_by_last_term: bool = False  # of the last record, and only by the newest seizure
    copies_stale_records: bool = False  # the replicator brings what a known seizure has cut off
    seizes_on_unknown: bool = False  # upon an earlier seizure whose entry was never written
    seizes_stale_copy: bool = False
    breaks_stale_incoming: bool = False  # custody that comes to a copy with a stale tail
    completes_held_only: bool = False  # a seizure's entry is not made good
    rebuild_needs_divergence: bool = False  # a source shorter than the copy shows none
    rebuilds_unproven: bool = False  # without looking whether the source agrees just before what was kept
    opens_where_it_comes_in: bool = False  # a box that left elsewhere, without asking the site that it left
    delayed_events_count: bool = False  # an event older than the last grant moves custody all the same


NONE = Faults()
