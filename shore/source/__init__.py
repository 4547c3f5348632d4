"""The implementation of the Python Data Source ``fairlead``: thousands of logs in a few tasks, for batch and streaming.

In: a site's logs, by ``fairlead.kafka``. Out: rows in Arrow record batches, raw or as the columns of table
``readings``. ``stream`` runs on the driver and decides where each micro-batch ends; ``task`` runs on executors and
reads ranges of logs; ``losses`` keeps notes of lost records; the other modules are pure. Spark calls
``shore.datasource``: open it first. Nothing is imported here, so comparing positions (``offsets``) needs no Spark.
"""
