"""Streams as objects: what the sites have of each, what the topology says about it, and changes to both.

In: an opened topology and its sites. Out: JSON-ready descriptions, and plans. Open ``inventory`` first; ``settings``
changes a stream in the topology's file, ``delete`` removes the topics of a stream that the topology no longer has.
"""
