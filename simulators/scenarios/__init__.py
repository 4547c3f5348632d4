"""Scenarios that ship with Fairlead, as YAML; ``simulators.scenario_file.load`` finds them by name."""
