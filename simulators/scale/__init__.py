"""How large a fleet's sites and links must be: the model alone, without brokers, and what each record costs.

In: a voyage. Out: records, bytes per link, storage per site and day. ``ways`` says over which links a record travels,
``costs`` what one costs, ``sizing`` counts a whole voyage, ``model`` is the result, ``table`` shows it.
"""
