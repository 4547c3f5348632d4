"""``fairlead up``, ``down``, ``status`` and ``fairlead site``.

Open ``local`` first: it starts and stops the sites of this machine. ``status`` shows their state, ``app`` shuts a ship
out.
"""
