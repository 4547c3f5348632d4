"""What customers are entitled to, by DuckDB over tables that delta-rs opens: what ``shore.verify.feeds`` compares with.

``shore.feeds`` has the same as DataFrames. This package goes when ``fairlead shore verify`` has a Spark session.
"""
