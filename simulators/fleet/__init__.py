"""Scenarios, and the plan that follows from one: ships, routes, timetables, boxes. Pure.

In: a scenario's YAML, a topology, a seed. Out: a ``Plan``: every box with its journey, fixed before anything is
published. Open ``scenario`` first, then ``plan`` (the data) and ``planner`` (how it is made).
"""
