"""What an operator does with a link: pause and resume, promote, failover, reverse, restore; with Cluster Linking's
meanings.

``look`` gathers what is so now, ``build`` makes a frozen plan of it or refuses (pure), and ``explain`` and
``execute`` walk the same steps of that plan, so that it cannot say one thing and do another. Everything that touches
a cluster or a file goes through ``ground``.
"""
