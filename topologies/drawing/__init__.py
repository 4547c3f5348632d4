"""Drawings of a topology.

In: a ``Topology``. Out: a drawing as text or as a picture. Open ``text`` first; ``seachart`` has positions at sea.
"""
