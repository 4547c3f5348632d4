"""SCRAM-SHA-512 and SCRAM-SHA-256 against kafka-python's client and against a server of the tests."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient as Oracle

from fairlead.kafka.protocol.scram import ScramClient, salt_of
from tests.support.kafka.fake_scram import ScramServer

PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="=,"), min_size=1, max_size=20)


@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-512", "sha512"), ("SCRAM-SHA-256", "sha256")])
@settings(max_examples=20, deadline=None)
@given(PLAIN, st.text(min_size=1, max_size=20), st.binary(min_size=8, max_size=40), st.integers(4096, 5000))
def test_messages_are_kafka_pythons(
    mechanism: str, digest: str, user: str, password: str, salt: bytes, iterations: int
) -> None:
    oracle = Oracle(user, password, mechanism)
    client = ScramClient(user, password, digest=digest, nonce=oracle.nonce.decode())
    assert client.first() == oracle.first_message()
    nonce = oracle.nonce.decode() + "server"
    challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}".encode()
    oracle.process_server_first_message(challenge)
    assert client.final(challenge) == oracle.final_message()
    client.verify(b"v=" + base64.b64encode(oracle.server_signature))


@pytest.mark.parametrize("user", ["bridge", "a=b,c"])
def test_a_login(user: str) -> None:
    # The server keeps names as they are sent, with = and , written as RFC 5802 wants it.
    server = ScramServer({user.replace("=", "=3D").replace(",", "=2C"): "right"})
    client = ScramClient(user, "right")
    challenge = server.step(client.first())
    assert challenge is not None
    done = server.step(client.final(challenge))
    assert done is not None
    client.verify(done)
    with pytest.raises(ValueError, match="signature"):
        client.verify(b"v=" + base64.b64encode(bytes(64)))


@pytest.mark.parametrize(
    "challenge",
    [
        pytest.param("r=other,s=c2FsdA==,i=4096", id="another nonce"),
        pytest.param("r=mine,s=c2FsdA==,i=4096", id="nothing of the server in the nonce"),
        pytest.param("r=mineX,s=c2FsdA==,i=1", id="so few iterations that the proof gives the password away"),
        pytest.param("r=mineX,s=c2FsdA==,i=1000000000", id="so many that we would be busy for minutes"),
        pytest.param("r=mineX,s=c2FsdA==,i=many", id="no number"),
        pytest.param("r=mineX,s=!,i=4096", id="no base64"),
        pytest.param("e=other-error", id="an error"),
        pytest.param("", id="nothing"),
    ],
)
def test_a_false_server_gets_no_proof(challenge: str) -> None:
    client = ScramClient("bridge", "right", nonce="mine")
    with pytest.raises(ValueError):
        client.final(challenge.encode())


@pytest.mark.parametrize("answer", [b"", b"e=invalid-proof", b"v=", b"v=AAAA"])
def test_a_server_must_prove_itself(answer: bytes) -> None:
    with pytest.raises(ValueError, match="signature"):
        ScramClient("bridge", "right").verify(answer)


def test_the_salt_is_in_the_servers_first_message() -> None:
    challenge = ScramServer({"bridge": "right"}).step(ScramClient("bridge", "").first())
    assert challenge is not None
    assert b"s=" + salt_of(challenge) + b"," in challenge
    with pytest.raises(ValueError, match="no salt"):
        salt_of(b"e=other-error")
