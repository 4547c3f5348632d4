"""Draw a topology, and know where its ports are.

In: a ``Topology``. Out: a drawing as text. Open ``text`` first; ``seachart`` has the places of the world's ports.
"""
