"""``fairlead link resolve``: the way out of every named state of a log, as a plan that loses nothing.

``facts`` asks the sites, ``plan`` builds a plan from what they answer (pure; open it first), ``steps`` are what a plan
consists of, ``copier`` keeps the old version of a log under another name.
"""
