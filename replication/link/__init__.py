"""One link: its source, what is fetched from it, and where each log goes on.

In: the logs that the plan gives to the link. Out: fetched batches for the target, and the link's state. Open
``source_link`` first. It has fetchers for each priority class (``fetcher``), which share a ``byte_budget``.
``offset_reset`` and ``start`` find where a log begins; ``cut_off`` refuses what the source has no right to give.
"""
