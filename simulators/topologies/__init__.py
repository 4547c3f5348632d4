"""Topologies that only scenarios need; found by the name that a scenario gives its topology."""
