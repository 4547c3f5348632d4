"""The Python Data Source ``fairlead``: thousands of logs in a few tasks, for batch and streaming.

In: a site's logs, by ``fairlead.kafka``. Out: rows in Arrow record batches, raw or as the columns of table
``readings``. Runs on executors, so these modules hold no state of the driver. ``datasource.register(spark, endpoint)``
makes it known. Nothing is imported here: who only compares positions (``offsets``) needs no Spark.
"""
