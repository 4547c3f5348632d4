"""Reports out of the tables, without a JVM: what one container went through, and what a port has coming.

In: the Delta tables and the topology. Out: a report as data (``container``, ``port``), as one HTML page without scripts
(``container_page``, ``port_page``), and the files of a claim with a manifest that leads back to the logs (``pack``).
"""
