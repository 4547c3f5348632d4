"""From fetched bytes to what may be appended; pure.

In: record batches as a source stored them. Out: prepared batches with the offsets that they must get, or why a batch
cannot be copied. Open ``prepare`` first, which decides; ``prepared`` are its results. ``header_rewrite`` gives a batch
another producer, ``rebuild`` writes it again record by record or makes fillers, ``batch_diff`` compares two copies.
"""
