"""Air, sea, cold boxes, and what sensors make of them; pure but for random numbers that are given.

In: a plan and a simulated time. Out: readings. Open ``sensors`` first; ``reefer`` is the thermal model, ``climate`` the
weather around it.
"""
