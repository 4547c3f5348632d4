"""What cannot wait for shore: overboard, power lost, temperature out of band, found in the readings on board.

In: readings of the boxes aboard and the ship's own positions, in the order of arrival. Out: alerts. Pure code: no I/O,
no clock of its own; all durations are in device time, so that a late burst of readings is judged by when it was
measured. Each rule is one module; what it goes by is in ``defaults.yaml``, with sources, and in a
file of the user's (``thresholds``). ``lost`` drafts the report of lost containers. docs/edge.md has all of it.
"""
