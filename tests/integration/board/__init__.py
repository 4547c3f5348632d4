"""The board over HTTP: real brokers, real Delta tables, a real browser."""
