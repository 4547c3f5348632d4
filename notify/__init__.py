"""Notifications of alerts: by e-mail, webhooks and chat, as ``notify`` in a topology routes them.

In: the logs ``alerts.*`` and ``bookings.*`` of one site. Out: messages to receivers, and how far each route is,
committed to a consumer group of its own in the same Kafka. Open ``service`` first; ``routes`` decides (pure),
``sender`` sends. The package uses what ``edge`` knows of bookings and what ``replication`` knows of groups, and so
stands above both.
"""
