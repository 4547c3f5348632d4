"""Change a broker's access rules, and wait until it applies them: it answers some milliseconds before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping

from acl.kafka import Client, KafkaRules
from acl.rules import Binding, Rule
from fairlead.kafka.endpoint import KafkaEndpoint
from tests.support.waits import until


def change(client: Client, add: Collection[Binding] = (), remove: Collection[Binding] = ()) -> frozenset[Binding]:
    """Add and remove rules. Return all rules that the cluster shows then."""
    store, held = KafkaRules(client), frozenset[Binding]()

    def shown() -> bool:
        nonlocal held
        held = store.read()
        return held.issuperset(add) and held.isdisjoint(remove)

    store.add(add)
    store.remove(remove)
    until(shown, f"the new rules of {client.endpoint.site}")
    return held


@contextlib.contextmanager
def permitted(kafka: Callable[[str], KafkaEndpoint], rules: Mapping[str, Collection[Rule]]) -> Iterator[None]:
    """Let these rules hold at each site while the context is open."""
    with contextlib.ExitStack() as stack:
        for site, some in rules.items():
            client, bindings = stack.enter_context(Client(kafka(site))), frozenset(map(Binding.of, some))
            stack.callback(change, client, (), bindings)
            change(client, bindings)
        yield
