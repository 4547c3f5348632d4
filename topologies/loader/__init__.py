"""Load a checked ``Topology`` from YAML text.

In: a shipped topology's name or a file, the local file beside it, the environment. Out: a ``Topology``, or all mistakes
with file, line and path. Open ``load`` first. ``positions`` records the line of every key, ``shape`` checks types and
formats, ``check`` checks the references between the parts.
"""
