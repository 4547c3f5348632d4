"""``fairlead custody``: show who may append to a container's log, move it by hand, list strays. Open ``app`` first."""
