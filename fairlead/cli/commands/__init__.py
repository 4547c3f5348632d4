"""The commands of ``fairlead``: each parses options, calls the package that does the work, and prints the result.

Each command has a module, and each group of several commands a package, whose ``app`` is named in ``fairlead.cli.app``.
"""
