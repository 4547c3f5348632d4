"""The bridge connects to an MQTT broker over TLS and verifies its certificate; otherwise it never sends the
password."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from pydantic import SecretStr

from edge.errors import MqttUnavailableError, MqttUntrustedError
from fairlead.certs.authority import issue, new_authority
from fairlead.certs.trust import KeyPair
from fairlead.kafka.endpoint import MqttEndpoint
from tests.support.mqtt_sessions import end_session

PASSWORD = "the-bridge-s-own"
CONNACK = b"\x20\x03\x00\x00\x00"


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return new_authority("Fairlead test")


class Heard:
    """A broker that accepts every login, and records what it receives, in clear text or inside TLS."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.said = b""

    async def __aenter__(self) -> MqttEndpoint:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._context)
        port = self._server.sockets[0].getsockname()[1]
        return MqttEndpoint("tokyo", "127.0.0.1", port, "bridge", SecretStr(PASSWORD), tls=True)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.said += await reader.read(4096)
            if self.said.startswith(b"\x10"):
                writer.write(CONNACK)
                await reader.read()
        except OSError:
            pass  # the client has aborted the handshake
        finally:
            writer.close()


def server_context(folder: Path, authority: KeyPair) -> ssl.SSLContext:
    pair = issue(authority, "mqtt.tokyo", ["127.0.0.1"])
    certificate, key = folder / "server.pem", folder / "server.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_broker_in_clear_text_never_hears_the_password() -> None:
    """A broker without TLS never receives the password."""
    broker = Heard()
    async with broker as endpoint:
        with pytest.raises(MqttUnavailableError, match="no TLS with the MQTT broker of tokyo") as caught:
            await asyncio.to_thread(end_session, endpoint, "c")
    assert "security: PLAINTEXT" in caught.value.hint
    assert broker.said and PASSWORD.encode() not in broker.said


async def test_without_a_ca_the_authorities_of_this_machine_count(
    authority: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a configured CA, the system's certificate authorities count."""
    broker = Heard(server_context(tmp_path, authority))
    async with broker as endpoint:
        with pytest.raises(MqttUntrustedError, match="the authorities that this machine knows"):
            await asyncio.to_thread(end_session, endpoint, "c")
        assert broker.said == b""
        machine = tmp_path / "machine.pem"
        machine.write_bytes(authority.certificate)
        monkeypatch.setenv("SSL_CERT_FILE", str(machine))
        await asyncio.to_thread(end_session, endpoint, "c")
    assert PASSWORD.encode() in broker.said


def test_authorities_mean_tls() -> None:
    """A configured CA implies TLS."""
    assert MqttEndpoint("tokyo", "h", 1883, tls_ca=Path("ca.pem")).tls
    assert not MqttEndpoint("tokyo", "h", 1883).tls
