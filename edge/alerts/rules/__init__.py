"""The alert rules. Pure.

In: one reading, the box's state and the ship's. Out: findings, which ``edge.alerts.engine`` turns into alerts. Open
``base`` first, then ``reefer``: rules with a dwell time, as most are.
"""
