"""Recorded voyages: every step of one in a file, and such a file as a voyage that can be sailed again."""
