"""Links with weather: TCP proxies between a replicator and its sources that delay, thin, lose, cut and swallow.

In: which sites are linked, where their brokers are, and what each link is like at a simulated time (``weather``). Out:
detours for ``fairlead replicate --detours``, and what was cut when. Open ``line`` first: ``way`` and ``line`` are the
proxy, which knows nothing of Fairlead; ``exchange`` has one line per link and carries out ``orders``; ``leader`` makes
weather into orders. ``network`` is an exchange in a thread of the voyage's process, ``server`` one in a process of its
own (in containers), which ``remote`` leads.
"""
