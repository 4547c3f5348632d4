"""The ``fairlead`` command.

In: a command line. Out: text or JSON, and an exit code. Open ``app`` first: the table of commands, each imported at its
first use. ``commands`` are thin: they parse, call one function of another package, and print on the ``console``.
"""
