"""Code that all parts of Fairlead share: the command line, record types, the Kafka client, local clusters.

In and out: nothing of its own; the other folders build on it. The shared modules import no other folder of this
repository; only ``fairlead/cli/app.py`` and the modules of ``fairlead/cli/commands/`` import all of them.
"""
