"""The way out of every named state of a log: a plan of steps that loses nothing, shown or carried out.

``facts`` is what is known, ``plan`` (with ``skipping`` and ``parts``) decides on ``steps`` (pure), ``explain`` tells
the steps to a person, ``execute`` does the same steps, ``copier`` keeps the old version under another name, ``look``
asks the sites.
"""
