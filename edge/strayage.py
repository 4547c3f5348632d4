"""An alert for strays that wait too long: custody has been lost somewhere, and somebody must look."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Final

from edge.lanes import SiteLanes, put_alerts
from fairlead.records.alert import Alert, AlertState, Evidence

EVERY = 1.0  # seconds between looks
LIMIT = 24 * 3600.0  # seconds; a day at sea without a word about custody is no longer a matter of a slow link
KIND: Final = "STRAYS_WAITING"


class StrayAge:
    """Raises an alert for each log whose oldest stray at this site is too old, and clears it when they are gone.

    Args:
        limit: Seconds that a stray may wait.
    """

    def __init__(self, site: str, lanes: SiteLanes, *, limit: float = LIMIT, every: float = EVERY) -> None:
        self._site = site
        self._lanes = lanes
        self._limit = limit
        self._every = every
        self._open: dict[str, Alert] = {}

    def restore(self, alert: Alert) -> None:
        """An alert from the tail of this site's alerts."""
        if alert.kind != KIND:
            return
        if alert.state == "CLEARED":
            self._open.pop(alert.equipment_reference, None)
        else:
            self._open[alert.equipment_reference] = alert

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look(time.time_ns() // 1_000_000)
            await asyncio.sleep(self._every)

    def look(self, now_ms: int) -> None:
        """Open and clear what the strays of this site say now."""
        index = self._lanes.strays.index
        late: set[str] = set()
        for topic in tuple(index.logs()):
            oldest = index.oldest_ms(topic)
            if oldest is None or now_ms - oldest < self._limit * 1000:
                continue
            number = topic.partition(".")[2]
            late.add(number)
            if number not in self._open:
                waiting = len(tuple(index.offsets(topic)))
                detail = f"{waiting} readings for {topic} wait in {self._lanes.strays.log}; see fairlead custody strays"
                since = dt.datetime.fromtimestamp(oldest / 1000, dt.UTC)
                self._open[number] = self._raise(number, "OPENED", since, now_ms, detail)
        for number in self._open.keys() - late:
            opened = self._open.pop(number)
            self._raise(number, "CLEARED", opened.event_date_time, now_ms, "the readings are in their log")

    def _raise(self, number: str, state: AlertState, since: dt.datetime, now_ms: int, detail: str) -> Alert:
        alert = Alert(
            alert_id=f"strays-{self._site}-{number}-{int(since.timestamp() * 1000)}",
            kind=KIND,
            severity="WARNING",
            state=state,
            equipment_reference=number,
            raised_at=self._site,
            event_date_time=since,
            raised_date_time=dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC),
            evidence=(Evidence(name="age", weight=1.0, detail=detail),),
        )
        put_alerts(self._lanes, [alert])
        return alert
