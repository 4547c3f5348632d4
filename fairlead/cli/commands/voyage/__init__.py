"""``fairlead voyage``: run a scenario, and report. Open ``app`` first."""
