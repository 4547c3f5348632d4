"""``fairlead custody``: who may append to a container's log, orders by hand, strays. Open ``app`` first."""
