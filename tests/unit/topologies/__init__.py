"""Topologies: loading, mistakes, overrides, users, drawings."""
