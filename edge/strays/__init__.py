"""Strays: readings and events of containers whose log another site holds, kept until the holder has them.

In: what may not be appended here. Out: the site's ``strays`` log, and what of all sites' strays still waits. Open
``store`` first; ``index`` tells a holder what to drain, ``report`` what waits and since when.
"""
