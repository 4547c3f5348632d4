"""Every mechanism by which users log in, at a real broker with TLS: our client's way and confluent-kafka's."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import UserScramCredentialAlteration
from pydantic import SecretStr

from fairlead.errors import ConfigurationError, FairleadError, LoginRefusedError
from fairlead.kafka.admin import create_logs, require_answer
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.credentials import accepts, credential, give_password
from fairlead.kafka.endpoint import KafkaEndpoint, KafkaLogin, SaslMechanism
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost
from fairlead.kafka.protocol.types import TP
from fairlead.kafka.tokens import OidcEndpoint
from fairlead.local import ports
from fairlead.local.certificates import Certificates
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import read_state
from tests.support import oidc
from tests.support.kafka.records import marker, record
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.integration, pytest.mark.processes("own brokers, with listeners for each way to log in")]

SITE: Final = "gate"
PLAIN: Final = "plain-password"
CLIENT_SECRET: Final = "client-secret"
SHORT: Final = 6.0  # seconds that a token lasts
_SECURITY: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Gate:
    """One broker with TLS. Port ``kafka`` takes every SASL mechanism, port ``certified`` takes client certificates."""

    local: LocalSites
    provider: oidc.Provider
    certified: int
    certificates: Path

    @property
    def scram(self) -> KafkaEndpoint:
        return self.local.kafka(SITE, "admin")

    def by(self, mechanism: SaslMechanism, secret: str) -> KafkaEndpoint:
        return replace(self.scram, password=SecretStr(secret), login=KafkaLogin(mechanism))

    def with_token(self, *, name: str = "admin", secret: str = CLIENT_SECRET, scope: str = "") -> KafkaEndpoint:
        tokens = OidcEndpoint(self.provider.endpoint, scope=scope)
        login = KafkaLogin(SaslMechanism.OAUTHBEARER, name, tokens)
        return replace(self.scram, password=SecretStr(secret), login=login)

    def with_certificate(self, user: str | None) -> KafkaEndpoint:
        login = KafkaLogin(None)
        if user is not None:
            file = self.certificates / user
            login = KafkaLogin(None, certificate=file.with_suffix(".pem"), key=file.with_suffix(".key"))
        return replace(self.scram, bootstrap=((ports.HOST, self.certified),), password=None, login=login)


def properties(local: LocalSites, provider: oidc.Provider, certified: int) -> dict[str, str]:
    (broker,) = read_state(local.folder / "state.json").sites[SITE].brokers
    listeners = f"CLIENT://{ports.HOST}:{broker.port},CERT://{ports.HOST}:{certified}"
    own, cert = "listener.name.client", "listener.name.cert"
    stores = {"keystore.type": "PEM", "keystore.location": "keystore.pem", "truststore.type": "PEM"}
    stores |= {"truststore.location": "truststore.pem", "client.auth": "required"}
    return {
        "listeners": f"{listeners},CONTROLLER://{ports.HOST}:{broker.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SASL_SSL,CERT:SSL",
        "sasl.enabled.mechanisms": ",".join(each for each in SaslMechanism if each == each.on_the_wire),
        f"{own}.scram-sha-256.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;",
        f"{own}.plain.sasl.jaas.config": f'{_SECURITY}.plain.PlainLoginModule required user_admin="{PLAIN}";',
        f"{own}.oauthbearer.sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        f"{own}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{own}.sasl.oauthbearer.jwks.endpoint.url": provider.jwks,
        f"{own}.sasl.oauthbearer.expected.audience": oidc.AUDIENCE,
        f"{own}.sasl.oauthbearer.expected.issuer": provider.url,
        f"{own}.connections.max.reauth.ms": "600000",
        **{f"{cert}.ssl.{name}": value for name, value in stores.items()},
        f"{cert}.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
    }


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    local = LocalSites(tmp_path_factory.mktemp("gate"))
    certificates = Certificates(local.folder)
    certificates.found("gate")
    with oidc.running({"admin": CLIENT_SECRET}) as provider, pytest.MonkeyPatch.context() as patch:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.jwks}"
        patch.setenv("JDK_JAVA_OPTIONS", f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {allowed}".strip())
        try:
            local.up([SiteSpec(SITE, tls=True)])
            local.down([SITE])
            (certified,) = ports.choose_ports(1, taken=read_state(local.folder / "state.json").sites[SITE].ports)
            local.up([SiteSpec(SITE, properties=properties(local, provider, certified))])
            folder = local.folder / "people"
            for name in ("admin", "stranger"):
                certificates.issue(name, ["client"], days=1, out=folder)
            admin = require_answer(local.kafka(SITE, "admin"))
            wanted: list[UserScramCredentialAlteration] = [
                credential("admin", SecretStr(PLAIN), SaslMechanism.SCRAM_SHA_256)
            ]
            for done in admin.alter_user_scram_credentials(wanted).values():
                done.result()
            yield Gate(local, provider, certified, folder)
        finally:
            local.down(purge=True)


Way = Callable[[Gate], KafkaEndpoint]
ALL: Final[dict[str, Way]] = {
    "SCRAM-SHA-512": lambda gate: gate.scram,
    "SCRAM-SHA-256": lambda gate: gate.by(SaslMechanism.SCRAM_SHA_256, PLAIN),
    "PLAIN": lambda gate: gate.by(SaslMechanism.PLAIN, PLAIN),
    "OAUTHBEARER": lambda gate: gate.with_token(),
    "certificate": lambda gate: gate.with_certificate("admin"),
}


@pytest.mark.parametrize("way", ALL)
async def test_both_clients_log_in_and_carry_records(gate: Gate, way: str) -> None:
    endpoint = ALL[way](gate)
    topic = f"test.{secrets.token_hex(4)}"
    await asyncio.to_thread(create_logs, endpoint, {topic: {}})
    async with await Cluster.open(endpoint, client_id="test") as cluster:
        await cluster.wait_writable([topic], PATIENCE)
        appender = Appender(cluster)
        await appender.open_term(TP(topic), 1, marker())
        assert (await appender.append(TP(topic), [record("ours")])).base_offset == 1
        await appender.close()
    assert await asyncio.to_thread(through_librdkafka, endpoint, topic) == [b"ours", b"theirs"]


def through_librdkafka(endpoint: KafkaEndpoint, topic: str) -> list[bytes | None]:
    """Append one record and read all but the marker."""
    producer = Producer({**endpoint.librdkafka(), "log_level": 0})
    producer.produce(topic, b"theirs", partition=0)
    assert producer.flush(PATIENCE) == 0
    consumer = Consumer({**endpoint.librdkafka(), "group.id": topic, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 0, 1)])
        found = consumer.consume(2, PATIENCE)
        return [message.value() for message in found]
    finally:
        consumer.close()


WRONG: Final[dict[str, tuple[Way, str]]] = {
    "SCRAM-SHA-256": (lambda gate: gate.by(SaslMechanism.SCRAM_SHA_256, "wrong"), "by SCRAM-SHA-256"),
    "PLAIN": (lambda gate: gate.by(SaslMechanism.PLAIN, "wrong"), "by PLAIN: .*nvalid username or password"),
    "client secret": (lambda gate: gate.with_token(secret="wrong"), "refuses the client 'admin': HTTP 401 invalid_cli"),
    "no certificate": (lambda gate: gate.with_certificate(None), "wants a certificate of the client"),
}


@pytest.mark.parametrize("way", WRONG)
async def test_a_wrong_secret_is_a_refusal_that_says_how_the_user_logs_in(gate: Gate, way: str) -> None:
    made, words = WRONG[way]
    endpoint = made(gate)
    with pytest.raises(AuthenticationFailed, match=words) as caught:
        await Cluster.open(endpoint, client_id="test", request_timeout=PATIENCE)
    assert "wrong" not in str(caught.value).replace("wrong-", "")
    with pytest.raises(LoginRefusedError):
        await asyncio.to_thread(require_answer, endpoint, PATIENCE)
    if way != "no certificate":
        with pytest.raises(FairleadError):
            await asyncio.to_thread(create_logs, endpoint, {"test.never": {}})


async def test_a_broker_that_offers_other_mechanisms_is_named_with_what_it_offers(
    tmp_path_factory: pytest.TempPathFactory, gate: Gate
) -> None:
    only = LocalSites(tmp_path_factory.mktemp("only"))
    try:
        only.up([SiteSpec("only")])
        endpoint = replace(only.kafka("only", "admin"), login=KafkaLogin(SaslMechanism.PLAIN))
        with pytest.raises(AuthenticationFailed, match="offers SCRAM-SHA-512 to log in, not PLAIN") as caught:
            await Cluster.open(endpoint, client_id="test")
        assert caught.value.hint == "set sasl_mechanism of only to SCRAM-SHA-512"
        with pytest.raises(LoginRefusedError, match="SCRAM-SHA-512"):
            await asyncio.to_thread(require_answer, endpoint, PATIENCE)
    finally:
        only.down(purge=True)
    without = replace(gate.scram, bootstrap=gate.with_certificate(None).bootstrap, login=KafkaLogin())
    admin = gate.with_certificate("admin").login
    without = replace(without, login=replace(admin, mechanism=SaslMechanism.SCRAM_SHA_512))
    with pytest.raises(AuthenticationFailed, match="wants no login by SASL"):
        await Cluster.open(without, client_id="test")


async def test_a_certificate_of_somebody_without_rights_is_let_in_and_sees_nothing(gate: Gate) -> None:
    topic = f"test.{secrets.token_hex(4)}"
    await asyncio.to_thread(create_logs, gate.scram, {topic: {}})
    async with await Cluster.open(gate.with_certificate("stranger"), client_id="test") as cluster:
        assert topic not in await cluster.topics()


async def test_a_token_that_the_broker_does_not_want_is_refused_with_its_reason(gate: Gate) -> None:
    endpoint = gate.with_token(scope="for another audience")
    gate.provider.audience = "something else"
    try:
        with pytest.raises(AuthenticationFailed, match="by OAUTHBEARER: ") as caught:
            await Cluster.open(endpoint, client_id="test")
        assert "issuer, audience and key set" in caught.value.hint
    finally:
        gate.provider.audience = oidc.AUDIENCE
    async with await Cluster.open(endpoint, client_id="test") as cluster:  # the refused token is not kept
        assert cluster.pool.connected


@pytest.mark.long
async def test_long_connections_get_new_tokens_before_the_old_ones_end(gate: Gate) -> None:
    """A session lasts as long as its token, and a provider that is away for a while costs nothing."""
    gate.provider.lifetime = SHORT
    try:
        endpoint = gate.with_token(scope="short")
        topic = f"test.{secrets.token_hex(4)}"
        await asyncio.to_thread(create_logs, gate.scram, {topic: {}})
        async with await Cluster.open(endpoint, client_id="test") as cluster:
            await cluster.wait_writable([topic], PATIENCE)
            appender = Appender(cluster)
            await appender.open_term(TP(topic), 1, marker())
            first = cluster.pool.ready("control", min(cluster.metadata.brokers))
            issued, count = gate.provider.issued["admin"], 0
            async with asyncio.timeout(PATIENCE):
                while gate.provider.issued["admin"] < issued + 3:
                    await appender.append(TP(topic), [record(str(count))])
                    count += 1
                    gate.provider.down = gate.provider.issued["admin"] == issued + 1 and count % 100 < 10
                    await asyncio.sleep(0.01)
                gate.provider.down = False
            assert (await cluster.end_offsets([TP(topic)]))[TP(topic)] == count + 1
            assert first is not None
            assert cluster.pool.ready("control", min(cluster.metadata.brokers)) is first  # never lost
            assert gate.provider.issued["admin"] <= issued + 4  # one token for all connections
            await appender.close()
    finally:
        gate.provider.lifetime, gate.provider.down = 3600.0, False


async def test_a_provider_that_does_not_answer_is_no_refusal(gate: Gate) -> None:
    gate.provider.down = True
    try:
        with pytest.raises(ConnectionLost, match="gives no token: HTTP 503 temporarily_unavailable"):
            await Cluster.open(gate.with_token(scope="down"), client_id="test")
    finally:
        gate.provider.down = False


def test_a_new_password_is_of_the_mechanism_of_the_site(gate: Gate) -> None:
    admin = gate.by(SaslMechanism.SCRAM_SHA_256, PLAIN)
    give_password(admin, "rotated", SecretStr("by-256"))
    rotated = replace(admin, user="rotated", password=SecretStr("by-256"))
    assert accepts(rotated)
    assert not accepts(replace(rotated, login=KafkaLogin()))  # there is none for SCRAM-SHA-512
    with pytest.raises(ConfigurationError, match="log in by a client certificate"):
        give_password(gate.with_certificate("admin"), "rotated", SecretStr("x"))
