"""The rules that clusters hold, read at several sites at once; one that is away holds up no other."""

from __future__ import annotations

from collections.abc import Collection

from acl.apply import OpenStore, at_once
from acl.binding import Binding
from acl.plan import Unread
from fairlead.errors import FairleadError

Held = frozenset[Binding] | Unread
"""All rules of a site's cluster, or why they could not be read."""


def read_held(open_store: OpenStore, sites: Collection[str]) -> dict[str, Held]:
    """All rules of each site's cluster."""

    def read(site: str) -> Held:
        try:
            with open_store(site) as store:
                return store.read()
        except FairleadError as error:
            return Unread(site, error.what, error.hint)

    return dict(zip(sites, at_once(read, sites), strict=True))
