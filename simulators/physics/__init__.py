"""Air, sea, reefers and their sensors. Pure, with given random generators.

In: a plan and a simulated time. Out: readings. Open ``sensors`` first; ``reefer`` is the thermal model, ``climate`` the
weather around it.
"""
