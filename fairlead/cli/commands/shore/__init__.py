"""``fairlead shore``: fill tables and customers' feeds from the logs. Open ``app`` first."""
