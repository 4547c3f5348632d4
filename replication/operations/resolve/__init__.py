"""Resolve every named state of a log with a plan that loses no records (``fairlead link resolve``).

``facts`` asks the sites, ``plan`` builds a plan from their answers (pure; open it first), ``steps`` are its steps,
``copier`` keeps the old version of a log under another name.
"""
