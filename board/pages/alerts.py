"""Open alerts as rows, and the forms by which an operator acknowledges or clears one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from board.drawing import SEVERITIES
from board.openapi import Field
from board.security import local_path
from board.service import BoardService, Page, address_of
from board.viewer import Access, Viewer
from edge.alerts.operator import chosen, order_for, place_order
from edge.alerts.site_alerts import KINDS as SITE_KINDS
from fairlead.kafka.client.cluster import Cluster
from fairlead.records.alert import Alert

_WAIT: Final = 10.0  # seconds for the bridge to answer
LONGEST_REASON: Final = 500


Wanted = Callable[[Alert], bool]
"""Whether an alert belongs on a page."""


@dataclass(frozen=True, slots=True)
class AlertRow:
    """What a row shows of an alert. ``acknowledge`` and ``clear``: whether this viewer can do that here."""

    alert: Alert
    opened: dt.datetime
    tone: str
    where: str
    detail: str
    acknowledge: bool
    clear: bool


def row_of(board: BoardService, viewer: Viewer, alert: Alert) -> AlertRow:
    """Return the row of an alert that ``board.live`` knows."""
    site = board.topology.sites.get(alert.raised_at)
    ordered = viewer.operates and alert.state != "CLEARED" and board.may_order_at(alert.raised_at)
    return AlertRow(
        alert=alert,
        opened=board.live.opened(alert),
        tone=SEVERITIES[alert.severity],
        where=site.title or alert.raised_at if site else alert.raised_at,
        detail="; ".join(each.detail or each.name for each in alert.evidence),
        acknowledge=ordered and not alert.acknowledged_by,
        clear=ordered and alert.kind not in SITE_KINDS,
    )


def alert_rows(board: BoardService, viewer: Viewer, wanted: Wanted | None = None) -> list[AlertRow]:
    """Return the open alerts, the worst first, among them the newest first.

    Args:
        wanted: A condition on an alert; None for all.
    """
    found = [row_of(board, viewer, alert) for alert in board.live.open_alerts() if wanted is None or wanted(alert)]
    return sorted(found, key=lambda row: (row.alert.severity != "CRITICAL", row.tone != "bad", -row.opened.timestamp()))


def alert_panel(board: BoardService, viewer: Viewer, wanted: Wanted | None, page: str) -> dict[str, Any]:
    """Return what ``alerts.html.j2`` shows on a page: its alerts, whether they are known, and where its forms lead."""
    return {"alerts": alert_rows(board, viewer, wanted), "alerts_known": board.live.read_at is not None, "next": page}


async def acknowledge(board: BoardService, request: Request) -> Response:
    """Say that somebody sees to an alert; the record names the viewer."""
    return await _order(board, request, acknowledges=True)


async def clear(board: BoardService, request: Request) -> Response:
    """End an alert that no reading ends, or that was a mistake. Needs a reason."""
    return await _order(board, request, acknowledges=False)


async def _order(board: BoardService, request: Request, *, acknowledges: bool) -> Response:
    form = await request.form()
    reason = str(form.get("reason") or "").strip()[:LONGEST_REASON]
    target = local_path(form.get("next"))
    viewer = board.signed_in(request)
    alert = board.live.alert(request.path_params["alert_id"], str(form.get("site") or ""))
    if alert is None:
        raise HTTPException(404)
    site = alert.raised_at
    if not board.may_order_at(site):
        raise HTTPException(409, f"The alert was raised at {site}, and this board gives no orders there.")
    found = chosen([alert], alert.alert_id, site, acknowledge=acknowledges)
    now = dt.datetime.now(dt.UTC)
    order = order_for(found, reason, now, acknowledge=acknowledges, ordered_by=viewer.name)
    verb = "acknowledge" if acknowledges else "clear"
    facts = {"alert": alert.alert_id, "container": alert.equipment_reference, "reason": reason}
    board.audit.note(f"{verb}-alert", viewer.name, address_of(request), **facts)
    endpoint = board.kafka(site)
    async with await Cluster.open(endpoint, client_id="fairlead-board") as cluster:
        await place_order(cluster, endpoint, order, _WAIT)
    return RedirectResponse(target, 303)


_FIELDS: Final = (
    Field("alert_id", "The alert's id. It may have `/`, as it is.", example="OVERBOARD-CSQU3054383-1-0"),
    Field("site", "The site that raised it, where others have an alert with the same id."),
    Field("reason", "Words for the record.", {"type": "string", "maxLength": LONGEST_REASON}),
    Field("next", "The path of the page to go to then.", example="/"),
)
_ANSWERS: Final = {
    303: "Done: to the page `next`.",
    409: "The alert changed meanwhile, or this board gives no orders at its site.",
}

PAGES: Final = (
    Page("/alerts/{alert_id:path}/acknowledge", acknowledge, Access.OPERATOR, "POST", _FIELDS, (), _ANSWERS),
    Page("/alerts/{alert_id:path}/clear", clear, Access.OPERATOR, "POST", _FIELDS, (), _ANSWERS),
)
