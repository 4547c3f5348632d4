"""Draw a topology.

In: a ``Topology``. Out: a drawing as text or as a picture. Open ``text`` first; ``seachart`` draws the background of
maps.
"""
