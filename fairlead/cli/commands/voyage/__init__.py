"""``fairlead voyage``: sail a scenario, and report. Open ``app`` first."""
