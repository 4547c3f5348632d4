"""What the rules ashore go by: the values of detection on board for any cargo, so that both mean the same.

``edge/alerts/defaults.yaml`` and docs/alerts.md name their sources; a test compares them. Shore's rules do not look at
bookings, so they know no commodity.
"""

from __future__ import annotations

from typing import Final

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

FROZEN_SETPOINT: Final = -10.0  # Cel; at or below it return air controls, above it supply air (Carrier T-363)
TEMPERATURE_TOLERANCE: Final = 2.0  # Cel around the set point; judgement
TEMPERATURE_CRITICAL: Final = 5.0  # Cel; judgement: what on board makes a wrong set point critical
TEMPERATURE_DWELL_MS: Final = 60 * MINUTE_MS  # judgement
TEMPERATURE_RECOVERY_MS: Final = 15 * MINUTE_MS  # judgement
AFTER_DEFROST_MS: Final = 30 * MINUTE_MS  # judgement

POWER_DWELL_MS: Final = 30 * MINUTE_MS  # judgement: covers the changes of plug at gate, load and discharge

HUMIDITY_TOLERANCE: Final = 15.0  # per cent around the set point; judgement
HUMIDITY_DWELL_MS: Final = 4 * HOUR_MS  # judgement
HUMIDITY_RECOVERY_MS: Final = 30 * MINUTE_MS  # judgement

SILENCE_INTERVALS: Final = 4  # of the device's usual ones; judgement
SILENCE_AT_LEAST_MS: Final = 60 * MINUTE_MS  # judgement
SILENCE_UNKNOWN_MS: Final = 24 * HOUR_MS  # before two readings have told how often the device reports; judgement

CLOCK_AHEAD_MS: Final = 10 * MINUTE_MS  # a device's clock that is further ahead of the bridge's does not move time on

WATERMARK_DELAY_MS: Final = 30 * MINUTE_MS  # how far news of sites may be apart before one counts as behind; judgement
LOOK_AGAIN_MS: Final = 10 * MINUTE_MS  # at a silence that is not shore's to tell
FORGET_MS: Final = 180 * DAY_MS  # a container of which nothing came for so long is gone; judgement
