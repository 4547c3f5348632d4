"""Strays: readings and events of containers whose log another site holds, kept until the holder has them.

In: readings and events that this site may not append. Out: the site's ``strays`` log, and the strays of all sites that
still wait. Open ``store`` first: it keeps strays and tells a holder which to drain. ``report`` lists what waits.
"""
