"""Links with weather: TCP proxies between a replicator and its sources.

In: which sites are linked, where their brokers are, and the conditions of each link at a simulated time (``weather``).
Out: address overrides for ``fairlead replicate --address-overrides``, and a list of the cuts. Open ``proxy`` first.
``registry`` holds one proxy per link; ``controller`` turns weather into orders for it. The proxies run in a thread of
the voyage's process, or in a process of their own (``server``, in containers) that ``control_client`` controls.
"""
