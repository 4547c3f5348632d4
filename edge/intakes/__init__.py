"""Several processes that take a site's readings in: each has a share of what comes by MQTT, one appends.

In: messages of shared subscriptions, one MQTT session for each intake process. Out: readings, checked and in the order
of their devices, for the one process that keeps the site's logs (``edge.bridge``, here "the core"), over a socket pair
each. An intake acknowledges what the core says is stored, and nothing else. docs/edge.md has it for operators.

    intake process:  MqttSession -> Sorter -> frames        (process.py, sorting.py, frames.py)
    core:            frames -> Link -> Order -> edge.intake  (link.py, order.py, hub.py; keeper.py starts them)
                     sessions that are left over, and those that outlive the MQTT broker (leftovers.py, nets.py)

Imports what ``edge`` may import.
"""
