"""What customers are entitled to, by DuckDB over tables that delta-rs opens, for ``shore.verify.feeds``.

``shore.feeds`` computes the same with DataFrames. This package can go once ``shore.verify.feeds`` uses Spark.
"""
