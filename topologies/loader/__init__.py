"""From YAML text to a checked ``Topology``.

In: a shipped topology's name or a file, the local file beside it, the environment. Out: a ``Topology``, or all mistakes
with file, line and path. Open ``load`` first. ``positions`` knows the line of every key, ``shape`` checks form,
``check`` what must hold between the parts.
"""
