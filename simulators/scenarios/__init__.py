"""Scenarios that ship with Fairlead, as YAML; ``simulators.fleet.scenario_file.load`` finds them by name."""
