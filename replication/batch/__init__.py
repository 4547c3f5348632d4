"""Turn fetched bytes into batches that may be appended. Pure.

In: record batches as a source stored them. Out: prepared batches with the offsets that they must get, or the reason why
a batch cannot be copied. Open ``prepare`` first; ``prepared`` has its results. ``header_rewrite`` gives a batch another
producer, ``rebuild`` writes it again record by record or makes fillers, ``batch_diff`` compares two copies.
"""
