"""The way in of one bridge: its own MQTT session, and its intakes if it has any; takes over what was there before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from edge import mqtt
from edge.classifier import Classifier
from edge.errors import MqttRefusedError, MqttUnavailableError
from edge.intake import DROPPED, Intake
from edge.intakes.frames import Setup
from edge.intakes.hub import Hub
from edge.intakes.keeper import Keeper
from edge.intakes.leftovers import MOST_INTAKES, empty, find, together
from edge.intakes.names import OWN, WINDOW, intake_id, marks, share
from edge.intakes.nets import Nets
from edge.intakes.order import Source
from edge.intakes.sorting import Sorter
from edge.messages import SUBSCRIPTION
from edge.mqtt import Delivery, MqttSession
from edge.mqttclient import echo
from fairlead.endpoint import MqttEndpoint, MqttWay, current
from fairlead.errors import ConfigurationError
from topologies.model import Topology

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.2, 5.0


class WayIn:
    """Takes messages until it is told to stop.

    Without intakes the bridge's own session takes everything. With intakes it takes events, bookings and the ship's
    own reports; everything else is shared among the intakes.

    Args:
        count: How many intakes.

    Raises:
        ConfigurationError: too many, or fewer than none.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        endpoint: MqttWay,
        client_id: str,
        intake: Intake,
        classifier: Classifier,
        count: int,
    ) -> None:
        check_count(count)
        self._topology = topology
        self._site = site
        self._way = endpoint
        self._client_id = client_id
        self._intake = intake
        self._count = count
        self._marks = marks(client_id)
        self.session = MqttSession(
            endpoint,
            client_id=client_id,
            subscriptions=[(SUBSCRIPTION, 1), (DROPPED, 0)],
            on_message=intake.take,
        )
        self._hub = Hub(intake, Sorter(classifier, self._marks), self._marks, self.session.publish)
        self._keepers: list[Keeper] = []
        self._nets: Nets | None = None
        self._taken_over = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled, or until ``close``.

        Raises:
            MqttRefusedError: the MQTT broker refuses the bridge.
        """
        leftovers = await self._find()
        if self._count:
            await self._run_with_intakes(leftovers)
        elif leftovers:
            await self._run_with_leftovers(leftovers)
        else:
            await self.session.run()

    async def taking(self) -> None:
        """Wait until messages are taken."""
        await (self._taken_over if self._count else self.session.connected).wait()

    def take(self, delivery: Delivery) -> None:
        """A message that has come in another way, as if the bridge's own session had it."""
        self.session.on_message(delivery)

    def pause(self) -> None:
        """Take no more messages."""
        self.session.pause()
        self._hub.pause()
        for keeper in self._keepers:
            keeper.pause()

    async def close(self) -> None:
        """See to it that the broker has every acknowledgement, and end the intakes."""
        await asyncio.gather(self.session.disconnect(), *(keeper.close() for keeper in self._keepers))

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready."""
        session, keepers = self.session, self._keepers
        return {
            "acked": session.acknowledged + sum(keeper.acknowledged for keeper in keepers),
            "unacked": session.outstanding + sum(keeper.outstanding for keeper in keepers),
            "mqtt_connected": session.connected.is_set() and all(keeper.subscribed.is_set() for keeper in keepers),
            "mqtt_connections": session.connections,
            "mqtt_sessions_lost": session.sessions_lost + sum(keeper.sessions_lost for keeper in keepers),
            "held_for_order": len(self._hub.order),
            "passed_unordered": self._hub.order.forced,
            "intakes": [keeper.snapshot() for keeper in keepers],
        }

    # -- the three ways to run

    async def _run_with_leftovers(self, leftovers: list[str]) -> None:
        """What an earlier bridge with intakes has left, and then as without."""
        self._use_hub([(SUBSCRIPTION, 1), (self._marks, 1), (DROPPED, 0)])
        await together(self.session.run(), self._hub.run(), self._give_back(leftovers))

    async def _give_back(self, leftovers: list[str]) -> None:
        emptying = asyncio.create_task(self._empty(leftovers))
        try:
            await self.session.connected.wait()
            self._taken_over.set()
            await emptying
        finally:
            emptying.cancel()
        while True:
            await self.session.connected.wait()
            try:
                await self.session.unsubscribe(*OWN, self._marks)
                break
            except MqttUnavailableError:
                await asyncio.sleep(_FIRST_DELAY)
        while len(self._hub.order):  # noqa: ASYNC110 - a few marks
            await asyncio.sleep(_FIRST_DELAY)
        self.session.on_message, self.session.window = self._intake.take, mqtt.WINDOW

    async def _run_with_intakes(self, leftovers: list[str]) -> None:
        core = self._use_hub([*((topic, 1) for topic in OWN), (self._marks, 1), (DROPPED, 0)])
        self._keepers += [
            Keeper(self._hub, partial(self._setup, number), f"intake {number} of {self._site}")
            for number in range(1, self._count + 1)
        ]
        nets = self._nets = Nets(self._hub, self._way, self._client_id, self.session, core, self._all_subscribed)
        to_empty: list[str] = []

        async def begin() -> None:
            to_empty[:] = await nets.begin(leftovers)

        await self._until_there(begin)
        await together(
            self._empty_and_renew(to_empty, nets),
            self.session.run(),
            self._hub.run(),
            self._take_over(),
            *(keeper.run() for keeper in self._keepers),
        )

    async def _take_over(self) -> None:
        """The core's session has everything as long as no intake is there."""
        for keeper in self._keepers:
            await keeper.subscribed.wait()
        while not self._taken_over.is_set():
            await self.session.connected.wait()
            try:
                await self.session.unsubscribe(SUBSCRIPTION)
                self._taken_over.set()
            except MqttUnavailableError:
                await asyncio.sleep(_FIRST_DELAY)

    async def _empty_and_renew(self, leftovers: list[str], nets: Nets) -> None:
        await self._empty(leftovers)
        await nets.run()

    async def _empty(self, leftovers: list[str]) -> None:
        await empty(self._hub, self._endpoint, self._client_id, leftovers, self._taken_over)

    # -- parts

    def _use_hub(self, subscriptions: list[tuple[str, int]]) -> Source:
        session, order = self.session, self._hub.order
        core = order.add(self._client_id, lambda: session.full and order.holds(session.head))
        session.subscriptions = subscriptions
        session.on_message = self._hub.own(core)
        session.window = WINDOW
        session.on_change = lambda: self._core_changed(core)
        self._core_changed(core)
        return core

    def _core_changed(self, core: Source) -> None:
        self._hub.changed(core, connected=self.session.connected.is_set())
        if self._nets is not None:
            self._nets.changed()

    async def _all_subscribed(self) -> None:
        await self._hub.passed(*(keeper.source for keeper in self._keepers))
        for keeper in self._keepers:
            await keeper.subscribed.wait()

    @property
    def _endpoint(self) -> MqttEndpoint:
        return current(self._way)

    def _setup(self, number: int) -> Setup:
        endpoint = self._endpoint
        return Setup(
            site=self._site,
            topology=self._topology.model_dump_json(by_alias=True).encode(),
            host=endpoint.host,
            port=endpoint.port,
            user=endpoint.user,
            password=endpoint.password.get_secret_value() if endpoint.password is not None else None,
            tls_ca=str(endpoint.tls_ca) if endpoint.tls_ca is not None else None,
            client_id=intake_id(self._client_id, number),
            share=share(self._client_id),
            marks=self._marks,
            window=WINDOW,
            other_passwords=tuple(password.get_secret_value() for password in endpoint.other_passwords),
        )

    async def _find(self) -> list[str]:
        found: list[str] = []

        async def look() -> None:
            if self._count and not await asyncio.to_thread(
                echo, self._endpoint, f"{self._client_id}-echo", f"{self._marks}/echo"
            ):
                raise MqttRefusedError(
                    f"the MQTT broker of {self._site} does not carry the bridge's own messages, which intakes need",
                    hint="its access control must let the bridge read and write fairlead/intakes/#; or use --intakes 0",
                    site=self._site,
                )
            found[:] = await find(self._endpoint, self._client_id, self._count)

        await self._until_there(look)
        return found

    async def _until_there(self, what: Callable[[], Awaitable[object]]) -> None:
        """Do something that needs the MQTT broker; wait for one that is away."""
        delay = _FIRST_DELAY
        while True:
            try:
                await what()
                return
            except MqttUnavailableError as error:
                log.warning("%s; trying again in %.1f s", error.what, delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)


def check_count(count: int) -> None:
    """Refuse a number of intakes that cannot be.

    Raises:
        ConfigurationError
    """
    if not 0 <= count <= MOST_INTAKES:
        raise ConfigurationError(
            f"a bridge cannot have {count} intakes", hint=f"0 to {MOST_INTAKES}; more than cores are of no use"
        )
