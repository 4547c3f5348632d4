"""The size of a fleet's sites and links, and the cost of a record. Model only, no brokers.

In: a voyage. Out: records, bytes per link, storage per site and day. ``sizing`` counts a whole voyage over the
links that its records travel, ``costs`` holds the cost of one record, ``table`` shows the result.
"""
