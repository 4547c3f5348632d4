"""The documentation's generated pages: what follows from the code is written from the code, so that it cannot drift.

In: the commands as typer has them, the topology's pydantic model, the states, errors and metrics of every folder, and
what is written by hand beside them (YAML files here). Out: Markdown pages under ``docs/``, which are committed and
compared by a test; ``python -m handbook`` writes them anew. May import everything; nothing imports it, and it is no
part of what is installed.
"""
