"""Replication beside MirrorMaker 2. Open ``parts`` first."""
