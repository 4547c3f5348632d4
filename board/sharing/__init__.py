"""Delta Sharing: each customer's tables as a share, over the open protocol, for pandas, Spark and others.

``content`` says which rows of which tables a customer's share has, by what its feed holds. ``versions`` keeps them as
files that have nothing else. ``service`` answers for one customer at a time, ``routes`` puts that under
``/delta-sharing``, ``protocol`` has the forms of questions and answers, ``tokens`` says who may ask.
"""
