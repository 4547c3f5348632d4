"""What all pages share: the topology, the tables, the live logs, who has signed in, and how a page is written.

A page is a function of the board and a request (``Page``); ``board.app`` lists all of them and checks who may open
each, before the function runs.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

import anyio
import anyio.to_thread
import jinja2
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from board.audit import AuditLog
from board.live import LiveLogs
from board.metrics import RequestCounts
from board.openapi import HTML, SESSION, Answer, Field, PathOperation
from board.security import COOKIE, masked
from board.sessions import Session, Sessions
from board.sign_in import SignInCheck, Throttle
from board.viewer import Access, Viewer, viewer_of
from fairlead.fleet_status import fleet_status
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.paths import TablePaths
from shore.report.wording import MOVEMENTS, STATES, count, duration, number
from shore.report.wording import time as to_minutes
from shore.storage import open_paths
from topologies.context import Context
from topologies.model import Topology
from topologies.users import ADMIN, OIDC_SECRET

if TYPE_CHECKING:
    from board.oidc import OidcSignIn

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

FRESH: Final = 3.0
"""Seconds for which an answer read from tables or files is shown again, however many people look."""
SHARE: Final = 5.0
"""An answer is read anew after this many times as long as reading it took. So the board is not busy all the time."""
STALE: Final = 60.0
"""Seconds for which a page that takes long to make, and says as of when it is, is shown while it is made anew."""
_READERS: Final = 3  # threads that read tables at once; each may use a gigabyte
_KEPT: Final = 200  # answers
_OLD: Final = 600.0  # seconds after which an answer is forgotten
_PASSWORDS_EVERY: Final = 10.0  # seconds between two checks whether passwords have changed
_PASSWORDS_AT_ONCE: Final = 8


READERS: Final[Mapping[Access, str]] = {
    Access.ANYONE: "For everybody, without a sign-in.",
    Access.SIGNED_IN: "For everybody who has signed in.",
    Access.CUSTOMER: "For customers, about their own containers.",
    Access.STAFF: "For staff (`board.read`).",
    Access.OPERATOR: "For operators (`board.operate`).",
}
"""What the OpenAPI document says of each access."""
_CSRF: Final = Field("csrf", "The token in the forms of the session's pages. The header `x-csrf-token` may have it.")


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or one answer to a page's script.

    Args:
        path: As Starlette writes it, with ``{parameters}``.
        handler: Called when the viewer may open it; for ``POST`` only with the session's token. Its docstring describes
            the page in the OpenAPI document.
        fields: What it takes: the parameters of its path, of its query or of its form.
        media: The types of its answer; empty where it only sends elsewhere.
        answers: The statuses that it has besides those of every page with its access, and what they mean.
    """

    path: str
    handler: Callable[[BoardService, Request], Awaitable[Response]]
    access: Access
    method: str = "GET"
    fields: tuple[Field, ...] = ()
    media: tuple[str, ...] = (HTML,)
    answers: Mapping[int, str] = field(default_factory=dict)

    def operation(self) -> PathOperation:
        """Return the page as the OpenAPI document has it."""
        anyone, posted = self.access is Access.ANYONE, self.method != "GET"
        texts = dict(self.answers)
        if posted:
            texts |= {400: "The form cannot be read.", 403: "No page of the board sent the form, or it is too old."}
        if not anyone:
            texts |= {401: "Sign in first.", 503: "A table or Kafka cannot be read now. Try again."}
            texts.setdefault(303, "Sign in first: to /sign-in.")
        roles = () if self.access in (Access.ANYONE, Access.SIGNED_IN) else (self.access.value,)
        if roles:
            texts[404] = "There is no such page, or it is not for you."
        found = {status: Answer(text, (HTML,)) for status, text in texts.items()}
        if 303 in found:
            found[303] = Answer(texts[303], headers={"Location": "The path to go to."})
        if 307 in found:
            found[307] = Answer(texts[307], headers={"Location": "The path to go to."})
        if self.media:
            found[200] = Answer("The answer.", self.media)
        return PathOperation(
            method=self.method,
            path=self.path,
            about=self.handler,
            group=self.path.split("/")[1] or "fleet",
            readers=READERS[self.access],
            security="" if anyone else SESSION,
            fields=(*self.fields, *((_CSRF,) if posted and not anyone else ())),
            answers=found,
            roles=roles,
        )


@dataclass(slots=True, eq=False)
class _Answer:
    """What is read, or was. ``at``: when reading it ``began``; when it was read, once it is, which took ``taken``
    seconds."""

    task: asyncio.Future[Any]
    began: float
    at: float
    before: _Answer | None = None
    taken: float = 0.0

    @property
    def is_read(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None

    def needs_reading(self, now: float, changed: float) -> bool:
        """Return whether it is too old, or was begun before the tables changed."""
        if self.began < changed:
            return True
        return self.task.done() and now - self.at > max(FRESH, SHARE * self.taken)

    def usable(self, now: float, stale: float, changed: float) -> _Answer:
        """Return the answer before while this one is being read, if it is young enough; else this one."""
        before = self.before
        if self.task.done() or before is None or not before.is_read:
            return self
        return before if now - before.at <= stale and before.began >= changed else self

    def last(self) -> _Answer | None:
        """Return this answer, or the newest one before it, that has been read."""
        answer: _Answer | None = self
        while answer is not None and not answer.is_read:
            answer = answer.before
        return answer


class BoardService:
    """The board of one site.

    Args:
        site: The site whose Kafka it reads, and by whose brokers it checks passwords first.
        clock: Seconds that only rise, for waits and the age of answers.
    """

    def __init__(
        self,
        context: Context,
        site: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.context, self.site = context, site
        self.sessions = Sessions(clock)
        self.throttle = Throttle(clock)
        self.audit = AuditLog(context.folder / "run")
        self.requests = RequestCounts()
        self.live = LiveLogs(context.topology, lambda: self.kafka(site))
        self.sign_in = SignInCheck(lambda: self.topology, site, context.resolver.anybodys_kafka)
        self._clock = clock
        self._answers: dict[Hashable, _Answer] = {}
        self._tables_changed = -math.inf
        self._limit = anyio.CapacityLimiter(_READERS)

    @property
    def topology(self) -> Topology:
        return self.context.topology

    @property
    def paths(self) -> TablePaths:
        """Where the tables are; for a topology without shore, the place where they would be."""
        return open_paths(self.topology.shore, self.context.folder)

    @cached_property
    def oidc(self) -> OidcSignIn:
        """The sign-ins at the topology's provider."""
        from board.oidc import OidcSignIn  # loads Authlib, which reports and voyages do not need

        return OidcSignIn(
            lambda: self.topology.board.oidc if self.topology.board else None,
            lambda: self.context.resolver.newest_secret(self.site, OIDC_SECRET),
            self._clock,
        )

    def kafka(self, site: str) -> KafkaEndpoint:
        """Return a site's Kafka as the board's own user; as administrator at sites here that have no such user."""
        given = self.topology.board
        user = "board" if given is not None and site in given.at else ADMIN
        return self.context.resolver.kafka(site, user)

    def may_order_at(self, site: str) -> bool:
        """Return whether the board can give orders to the bridge of a site."""
        if site not in self.topology.sites:
            return False
        given = self.topology.board
        return (given is not None and site in given.at) or self.topology.sites[site].is_local

    def snapshot(self) -> dict[str, Any]:
        """Return what the metrics are made from."""
        return {
            "site": self.site,
            "sessions": self.sessions.number(),
            "streams": self.live.streams,
            "reads_logs": not self.live.trouble,
            "requests": self.requests,
            "audited": self.audit.events,
        }

    # --- who looks

    def session(self, request: Request) -> Session | None:
        """Return the session of a request; None where nobody has signed in."""
        token = request.cookies.get(COOKIE)
        return self.sessions.find(token) if token else None

    def viewer(self, request: Request) -> Viewer | None:
        """Return who looks. The topology is asked each time, so that what it takes away is gone at once."""
        session = self.session(request)
        return None if session is None else viewer_of(self.topology, session.name)

    def signed_in(self, request: Request) -> Viewer:
        """Return who looks at a page that ``board.app`` opens only to those who have signed in.

        Raises:
            HTTPException: the session has ended in this moment; 404, as for every page that is not for somebody.
        """
        viewer = self.viewer(request)
        if viewer is None:
            raise HTTPException(404)
        return viewer

    async def watch_passwords(self) -> None:
        """End the sessions of names whose Kafka password is changed or removed, until cancelled."""
        limit = asyncio.Semaphore(_PASSWORDS_AT_ONCE)
        while True:
            await asyncio.sleep(_PASSWORDS_EVERY)
            checks = [self._check_password(limit, name, site) for name, site in self.sessions.names_and_sites()]
            for failure in await asyncio.gather(*checks, return_exceptions=True):
                if failure is not None:
                    log.error("the board cannot tell whether a password has changed", exc_info=failure)

    async def _check_password(self, limit: asyncio.Semaphore, name: str, site: str | None) -> None:
        async with limit:
            version = await self.sign_in.password_version(name, site)
        if version is not None and self.sessions.end_outdated(name, version):
            why = "the password was changed" if version.salt is not None else "the password was removed"
            self.audit.note("session-ended", name, "", why=why)

    # --- what is read

    async def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads tables or files, in a thread."""
        return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), limiter=self._limit)

    async def read_once(self, key: Hashable, function: Callable[[], T], *, stale: float = 0.0) -> T:
        """Call a function in a thread, and give the answer to everybody who asks for ``key`` while it is fresh.

        It is fresh for ``FRESH`` seconds, and for ``SHARE`` times as long as reading it took. After that it is read
        anew, and whoever asks meanwhile gets the answer before, if it is at most ``stale`` seconds old; else all wait
        for the new one. Nobody gets an answer that was begun before ``tables_changed``. An error is not kept.
        """
        now, changed = self._clock(), self._tables_changed
        known = self._answers.get(key)
        if known is None or known.needs_reading(now, changed):
            self._forget(now)
            task = asyncio.ensure_future(self.read(function))
            known = self._answers[key] = _Answer(task, now, now, before=known)
            task.add_done_callback(partial(self._on_read, key, known))
        usable = known.usable(now, stale, changed)
        return cast(T, await asyncio.shield(usable.task))

    def tables_changed(self) -> None:
        """Let every answer of ``read_once`` that was begun before now be read anew."""
        self._tables_changed = self._clock()

    async def fleet_status(self) -> dict[str, Any]:
        """Return what ``fairlead.fleet_status`` tells of all sites, read for everybody who asks."""
        context = self.context
        read = partial(fleet_status, context.topology, context.folder, context.local, context.resolver)
        return await self.read_once("fleet", read)

    def _forget(self, now: float) -> None:
        """Forget old answers, and of too many the oldest. What is being read stays."""
        young = [(key, each) for key, each in self._answers.items() if now - each.at <= _OLD or not each.task.done()]
        self._answers = dict(sorted(young, key=lambda each: (not each[1].task.done(), each[1].at))[-_KEPT + 1 :])

    def last_answer(self, key: Hashable) -> Any:
        """Return the last answer that ``read_once`` got for a key, however old; None without one."""
        known = self._answers.get(key)
        last = None if known is None else known.last()
        return None if last is None else last.task.result()

    def _on_read(self, key: Hashable, answer: _Answer, task: asyncio.Future[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            if self._answers.get(key) is answer:
                del self._answers[key]
            return
        answer.at, answer.before = self._clock(), None
        answer.taken = answer.at - answer.began

    # --- how a page is written

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page made from a template of ``board/templates``."""
        return HTMLResponse(self.fragment(request, template, **values), status_code=status)

    def fragment(self, request: Request, template: str, **values: Any) -> str:
        """Return the text of a template, with what every template gets (``base.html.j2``)."""
        session, viewer = self.session(request), self.viewer(request)
        shared = {
            "viewer": viewer,
            "csrf": masked(session.csrf) if session else "",
            "topology": self.topology.title or self.topology.name,
            "path": request.url.path,
            "written": dt.datetime.now(dt.UTC),
        }
        of_logs = self.warnings() if viewer is not None and viewer.reads else ()
        values["warnings"] = [*of_logs, *values.pop("warnings", ())]
        return templates().get_template(template).render({**shared, **values})

    def text(self, template: str, **values: Any) -> str:
        """Return the text of a template that is the same for every viewer. May be called in a thread."""
        return templates().get_template(template).render(values)

    def warnings(self) -> list[str]:
        """Return what no page of the staff knows at the moment, in sentences. They are for the staff alone, because
        they name Kafka's addresses."""
        live, found = self.live, list[str]()
        if live.trouble and live.read_at is None:
            found.append(f"Alerts and positions are not known: {live.trouble}.")
        elif live.trouble:
            found.append(f"Alerts and positions are as of {live.read_at:%Y-%m-%d %H:%M} UTC: {live.trouble}.")
        if live.unread:
            names = ", ".join(sorted(live.unread))
            found.append(f"What came later than a damaged batch is not known of these logs: {names}.")
        return found


def address_of(request: Request) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client else ""


UNKNOWN: Final = Markup(
    '<span class="unknown"><span aria-hidden="true">\N{EN DASH}</span><span class="unseen">not known</span></span>'
)
"""A dash, which says "not known" to a screen reader."""


def moment(value: dt.datetime | jinja2.Undefined | None, seconds: bool = False) -> Markup:
    """Return a time in UTC as HTML; ``board.js`` shows it in the port's time where the reader wants that.

    Templates call this, ``badge`` and ``figure`` up to 30,000 times for a port, which takes macros a third of a second.
    """
    if not isinstance(value, dt.datetime):
        return UNKNOWN
    if value.tzinfo is not dt.UTC:
        value = _in_utc(value)
    day, clock = f"{value:%Y-%m-%d}", f"{value:%H:%M:%S}"
    shown = clock if seconds else clock[:5]
    return Markup(f'<time datetime="{day}T{clock}Z"{" data-seconds" if seconds else ""}>{day} {shown}</time>')  # noqa: S704


def _in_utc(value: dt.datetime) -> dt.datetime:
    """Return a time that a device told, which may be that of another time zone; as it is where UTC has no such time."""
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:  # in the first or the last hours of the calendar
        return value


def badge(text: str, tone: str = "quiet") -> Markup:
    """Return the words of a state in its tone (good, warn, bad, quiet), with a sign whose shape tells the tone too."""
    return Markup(f'<span class="badge {escape(tone)}">{escape(text)}</span>')  # noqa: S704


def figure(value: float | jinja2.Undefined | None, digits: int = 0, unit: str = "") -> Markup:
    """Return a number with thousands apart, a true minus, and its unit; ``UNKNOWN`` for None."""
    if value is None or isinstance(value, jinja2.Undefined):
        return UNKNOWN
    shown = f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")
    of = f'<span class="unit">&nbsp;{escape(unit)}</span>' if unit else ""
    return Markup(f'<span class="number">{shown}{of}</span>')  # noqa: S704


@cache
def templates() -> jinja2.Environment:
    """Return the templates of ``board/templates``."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("board", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["exported"] = False  # ``board.export`` says otherwise
    environment.globals |= {"moment": moment, "badge": badge, "figure": figure, "unknown": lambda: UNKNOWN}
    environment.filters |= {
        "minutes": to_minutes,
        "number": number,
        "duration": duration,
        "count": count,
        "movement": lambda code: MOVEMENTS.get(code, code),
        "state": lambda kind: STATES.get(kind, kind),
    }
    return environment
