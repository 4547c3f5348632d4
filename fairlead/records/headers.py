"""Names of the Kafka record headers that Fairlead writes. Values are ASCII text."""

from __future__ import annotations

from typing import Final

KIND: Final = "fairlead"  # "marker" or "filler" where the record is not data; absent on data
RECEIVED: Final = "received"  # milliseconds since 1970 (UTC) at which the bridge received the message
ORIGIN: Final = "origin"  # "<log>@<offset>": the source of a copied record (drained stray, customer feed)
RETRACTS: Final = "retracts"  # "<log>@<offset>": the origin of the record that a customer's feed retracts
LATE: Final = "late"  # "1" on a stray appended after newer readings of its device

MARKER: Final = b"marker"
FILLER: Final = b"filler"
