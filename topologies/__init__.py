"""YAML topologies and the typed model that reads them.

In: YAML files (those in this folder, or a user's own), a local override file, environment variables. Out: a frozen
``Topology``, or one error that lists every mistake with file, line and path; the users and addresses that follow from
it; its drawing as text and as SVG. Imports only ``fairlead``'s shared parts.
"""
