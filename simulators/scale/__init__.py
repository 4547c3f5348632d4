"""How large a fleet's sites and links must be: the model alone, without brokers, and what each record costs.

In: a voyage. Out: records, bytes per link, storage per site and day. ``sizing`` counts a whole voyage and says over
which links each record travels, ``costs`` holds what one record costs, ``table`` shows the result.
"""
