"""Reports from the tables, without a JVM: the history of one container, and what a port has coming.

In: the Delta tables and the topology. Out: a report as data and as one HTML page without scripts (``container``,
``port``), and the files of a claim with a manifest that leads back to the logs (``pack``). ``slices`` opens the part of
the tables that a report is about, ``course`` follows one container through them, ``drawing`` has what pages share.
"""
