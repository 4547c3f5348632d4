"""One module per command group of ``fairlead``: thin, they parse options, call the folder that does the work, print.

Each module exposes ``app`` (a typer application) or plain command functions that ``fairlead/cli.py`` names, and imports
when they are used.
"""
