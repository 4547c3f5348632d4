"""The alert rules. Pure.

In: one reading, the container's state and the ship's or the yard's. Out: findings, which ``edge.alerts.engine`` turns
into alerts.
Open ``base`` first, then ``reefer``, whose rules have a dwell time like most rules.
"""
