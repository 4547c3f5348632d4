"""YAML topologies and the typed model that reads them.

In: YAML files (shipped in this folder, or a user's own), a local override file, environment variables. Out: a frozen
``Topology`` (``model``), or one error that lists every mistake with file, line and path (``loader``); the users and
addresses that follow from the topology; its drawing. Open ``model`` first. Imports only ``fairlead``'s shared parts.
"""
