"""SCRAM against the vector of RFC 7677, and against brokers that do not play by the rules."""

from __future__ import annotations

import pytest

from simpleconsumer.security.sasl import Sasl, SaslRefused, conversation
from simpleconsumer.security.scram import ScramClient, ScramRefused
from simpleconsumer.security.security import ImportedCallback

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def client() -> ScramClient:
    return ScramClient("sha256", "user", "pencil", NONCE)


def test_the_conversation_of_rfc_7677(client: ScramClient) -> None:
    assert client.first() == b"n,,n=user,r=" + NONCE.encode()
    assert client.final(SERVER_FIRST) == PROOF
    client.check(SERVER_FINAL)


def test_the_longer_hash_makes_other_proofs() -> None:
    longer = ScramClient("sha512", "user", "pencil", NONCE)
    proof = longer.final(SERVER_FIRST)
    assert proof.startswith(PROOF.partition(b",p=")[0] + b",p=")
    assert len(proof) == len(PROOF) - 44 + 88
    with pytest.raises(ScramRefused, match="does not prove"):
        longer.check(SERVER_FINAL)


def test_names_are_escaped() -> None:
    assert ScramClient("sha256", "a=b,c", "x", "0").first() == b"n,,n=a=3Db=2Cc,r=0"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "'4095' iterations; 4096 to 1000000 are accepted"),
        (SERVER_FIRST.replace(b"4096", b"1000001"), "'1000001' iterations"),
        (SERVER_FIRST.replace(b"4096", b"9" * 5000), "'99999999999999999999' iterations"),
        (SERVER_FIRST.replace(b"4096", b"-1"), "'-1' iterations"),
        (SERVER_FIRST.replace(b"4096", "٤٠٩٦".encode()), "iterations"),
        (SERVER_FIRST.replace(b"W22Z", b"!!!!"), "not base64"),
        (b"e=unknown-user", "rejects user or password: 'unknown-user'"),
        (b"\xff\xfe", "not text"),
        (b"", "nonce does not continue"),
    ],
)
def test_a_broker_that_breaks_the_rules_gets_no_proof(client: ScramClient, message: bytes, said: str) -> None:
    with pytest.raises(ScramRefused, match=said):
        client.final(message)


@pytest.mark.parametrize(
    ("message", "said"),
    [(b"v=AAAA", "does not prove"), (b"", "does not prove"), (b"e=invalid-proof", "rejects user or password"),
     (b"v=%", "not base64")],
)  # fmt: skip
def test_a_broker_that_does_not_know_the_password_is_refused(client: ScramClient, message: bytes, said: str) -> None:
    client.final(SERVER_FIRST)
    with pytest.raises(ScramRefused, match=said):
        client.check(message)


def test_a_broker_that_skips_its_first_message_proves_nothing(client: ScramClient) -> None:
    with pytest.raises(ScramRefused, match="does not prove"):
        client.check(b"v=")


def test_each_conversation_has_a_nonce_of_its_own() -> None:
    sasl = Sasl("SCRAM-SHA-256", "user", "pencil")
    assert next(conversation(sasl)) != next(conversation(sasl))


def test_a_token_that_is_refused_is_refused_in_the_brokers_words() -> None:
    talk = conversation(Sasl("OAUTHBEARER", token=lambda: "t0ken"))
    assert next(talk) == b"n,,\x01auth=Bearer t0ken\x01\x01"
    with pytest.raises(SaslRefused, match="rejects the token: invalid_token"):
        talk.send(b'{"status":"invalid_token"}')
    for words in (b"no json", b"[]", b"{}"):
        talk = conversation(Sasl("OAUTHBEARER", token=lambda: "t0ken"))
        next(talk)
        with pytest.raises(SaslRefused, match="it gives no reason"):
            talk.send(words)


def test_a_callback_for_tokens_fails_without_showing_what_it_knows() -> None:
    def broken() -> str:
        raise RuntimeError("s3cret")

    for callback, said in ((broken, "RuntimeError"), (lambda: None, "NoneType"), (lambda: "a\x01b", "str"),
                           (lambda: "", "str")):  # fmt: skip
        with pytest.raises(SaslRefused, match=said) as refused:
            next(conversation(Sasl("OAUTHBEARER", token=callback)))  # type: ignore[arg-type]
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere.to.be_found:token", "sasl.oauthbearer.token.callback: module 'nowhere' does not exist"),
        ("json:token", "sasl.oauthbearer.token.callback: module 'json' has no 'token'"),
    ],
)
def test_a_callback_for_tokens_that_is_not_there_is_named(place: str, said: str) -> None:
    with pytest.raises(SaslRefused, match=said):
        next(conversation(Sasl("OAUTHBEARER", token=ImportedCallback(place))))
