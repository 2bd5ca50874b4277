"""When `zkconsumer release` may break a claim."""

from __future__ import annotations

import dataclasses

import pytest

from zkconsumer.admin.groups.release import clients_in, sessions_in
from zkconsumer.admin.groups.release_rules import Claim, Evidence, consumers_of, proof
from zkconsumer.admin.values import ClaimNotReleased

HELD = Claim("/consumers/g/owners/t/0", "g_ann-0", session=0x1A, czxid=0x64, version=0)
PERSISTENT = dataclasses.replace(HELD, session=0)


def refusal(claim: Claim, evidence: Evidence) -> str:
    with pytest.raises(ClaimNotReleased) as caught:
        proof(claim, evidence)
    assert caught.value.sentence.startswith("/consumers/g/owners/t/0 is not released: ")
    return str(caught.value)


def test_a_persistent_node_of_nobody_who_is_registered_is_dead() -> None:
    assert proof(PERSISTENT, Evidence(["g_bob"])).startswith("it is persistent")


@pytest.mark.parametrize("claim", [HELD, PERSISTENT])
@pytest.mark.parametrize("registered", ["g_ann", "g_ann-0"])
@pytest.mark.parametrize("vouched", [None, 0x64])
def test_the_claim_of_a_registered_consumer_is_never_broken(claim: Claim, registered: str, vouched: int | None) -> None:
    evidence = Evidence(["g_bob", registered], session_lives=False, vouched_czxid=vouched)
    assert f"is of {registered}, which is registered" in refusal(claim, evidence)


def test_a_node_left_behind_by_an_ended_session_is_dead() -> None:
    assert "session 0x1a has ended" in proof(HELD, Evidence([], session_lives=False))


@pytest.mark.parametrize(("lives", "word"), [(True, "lives"), (None, "may live")])
def test_a_session_that_lives_or_may_is_not_broken_and_its_client_is_named(lives: bool | None, word: str) -> None:
    said = refusal(HELD, Evidence([], session_lives=lives, client="10.0.0.7:41234"))
    assert f"session 0x1a {word}, a client at 10.0.0.7:41234" in said
    assert "the number of the claim: claim=0x64, or --claim 0x64 of the command" in said


def test_asked_for_a_second_time_with_the_number_of_the_claim_it_is_broken() -> None:
    assert "you confirm that" in proof(HELD, Evidence([], session_lives=True, vouched_czxid=0x64))


@pytest.mark.parametrize("claim", [HELD, PERSISTENT])
def test_another_claim_than_the_one_that_was_vouched_for_is_not_released(claim: Claim) -> None:
    assert "it is now another node, claim 0x64" in refusal(claim, Evidence([], vouched_czxid=0x63))


@pytest.mark.parametrize(
    ("thread", "consumers"),
    [("g_ann-0", ("g_ann", "g_ann-0")), ("g_h-1400-ab-12", ("g_h-1400-ab", "g_h-1400-ab-12")), ("ann", ("ann",)),
     ("", ("",))],
)  # fmt: skip
def test_every_consumer_for_which_an_owner_node_may_stand_counts(thread: str, consumers: tuple[str, ...]) -> None:
    assert consumers_of(thread) == consumers


# As ZooKeeper 3.4.6 and 3.9.5 answer.
DUMP = """SessionTracker dump:
Session Sets (2)/(2):
1 expire at Sat Nov 21 22:44:52 UTC 2026:
\t0x10000c8faa00001
1 expire at Sat Nov 21 22:44:54 UTC 2026:
\t0x10000c8faa00002
ephemeral nodes dump:
Sessions with Ephemerals (1):
0x10000c8faa00003:
\t/consumers/g/owners/t/0
"""
CONS = """ /127.0.0.1:41482[0](queued=0,recved=1,sent=0)
 /127.0.0.1:41474[1](queued=0,recved=2,sent=2,sid=0x1a200488ad60001,lop=CREA,est=1795301084047,to=10000,lcxid=0x1)
 /0:0:0:0:0:0:0:1:41475[1](queued=0,recved=2,sent=2,sid=0xffff00488ad60002,lop=PING)
"""


def test_the_sessions_that_a_leader_keeps_time_of_are_read_and_not_the_owners_of_nodes() -> None:
    assert sessions_in(DUMP) == {0x10000C8FAA00001, 0x10000C8FAA00002}


@pytest.mark.parametrize("text", ["", "dump is not executed because it is not in the whitelist.\n"])
def test_what_is_not_answered_is_not_known(text: str) -> None:
    assert sessions_in(text) == set()
    assert clients_in(text) == {}


def test_the_clients_of_a_server_are_read() -> None:
    assert clients_in(CONS) == {
        0x1A200488AD60001: "127.0.0.1:41474", 0xFFFF00488AD60002: "0:0:0:0:0:0:0:1:41475",
    }  # fmt: skip
