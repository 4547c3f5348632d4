"""The commands of ``fairlead``: they parse options, call the package that does the work, print.

A module for each command, a package for each group of several. In a package ``app`` is what ``fairlead.cli.app`` names.
"""
