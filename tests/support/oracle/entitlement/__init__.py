"""What customers are entitled to, by DuckDB over tables that delta-rs opens. ``shore.feeds`` must find the same."""
