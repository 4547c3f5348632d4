"""What an operator does with a link: pause, resume, promote, failover, reverse, restore.

The verbs mean what they mean in Confluent's Cluster Linking. ``facts`` is what is asked for and what is true now,
``plan`` builds a plan from it or refuses (pure; open it first), ``steps`` are what a plan consists of. Everything that
touches a cluster or a file goes through ``access``. ``report`` is ``fairlead link list``.
"""
