"""Fetch logs over one link from its source, and find the offset at which each log continues.

In: the logs that the plan gives to the link. Out: fetched batches for the target, and the link's state. Open
``source_link`` first. It has fetchers for each priority class (``fetcher``), which share a ``byte_budget`` and what is
known of the logs (``link_logs``). ``offset_reset`` and ``start`` find where a log begins; ``cut_off`` refuses batches
that the source may not write.
"""
