"""Requests of members that were recorded from real brokers, replayed on embedded ones; and their records."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from broker_wire import Wire
from group_wire import GroupClient, coordinator_of

from simpleconsumer.dialect import KAFKA011
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.cluster import VERSIONS
from zkconsumer.testing.embedded.kafka011.broker import Broker011
from zkconsumer.testing.embedded.kafka011.generations import GENERATIONS
from zkconsumer.testing.embedded.kafka011.group_records import (
    GroupRecord,
    StoredOffset,
    decode_group,
    decode_group_key,
    decode_offset,
    decode_offset_key,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from zkconsumer.testing.embedded.kafka011.log import records_from
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.waiting import wait_until

FOLDER = Path(__file__).parent.parent / "golden" / "groups"
RECORDED = ("0.9", "0.10", "1.1", "2.8", "3.9", "4.3")
TOPIC = "tt"
PATIENCE_S = 20.0
UUID = rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
BY_HAND = (
    "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch-v1", "OffsetFetch-v2-all", "DescribeGroups-v0",
    "LeaveGroup", "DescribeGroups-v0-empty",
)  # fmt: skip
IN_ORDER = {
    "range": "A:JoinGroup A:JoinGroup A:SyncGroup A:OffsetFetch A:OffsetCommit B:JoinGroup B:JoinGroup* A:Heartbeat "
             "A:JoinGroup B: B:SyncGroup* A:SyncGroup B: B:LeaveGroup A:JoinGroup A:SyncGroup A:LeaveGroup",
    "coop": "A:JoinGroup A:JoinGroup A:SyncGroup A:OffsetFetch A:OffsetCommit B:JoinGroup B:JoinGroup* A:Heartbeat "
            "A:JoinGroup B: B:SyncGroup* A:SyncGroup B: A:JoinGroup* B:Heartbeat B:JoinGroup A: B:SyncGroup* "
            "A:SyncGroup B: B:LeaveGroup A:JoinGroup A:SyncGroup A:LeaveGroup",
    "static": "A:JoinGroup A:SyncGroup A:OffsetFetch A:OffsetCommit B:JoinGroup* A:Heartbeat A:JoinGroup B: "
              "B:SyncGroup* A:SyncGroup B:",
}  # fmt: skip
"""What the two members sent; `*`: the answer waits, `B:` is where it came."""


def frame(generation: str, name: str) -> bytes:
    lines = (FOLDER / f"kafka-{VERSIONS[generation]}" / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(lines[1:]))


def name_of(generation: str, stem: str) -> str | None:
    """The name of a frame, whose version and kind are left open; None if it was not kept."""
    found = sorted((FOLDER / f"kafka-{VERSIONS[generation]}").glob(f"{stem}-request.hex"))
    return found[0].stem.removesuffix("-request") if found else None


class Ids:
    """Which member ids of the run stand in the places of recorded ones."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def learn(self, recorded: bytes, answer: bytes) -> None:
        """At most one of the ids in an answer is new: members are named in any order."""
        theirs = set(re.findall(UUID, recorded)) - set(self._known)
        ours = set(re.findall(UUID, answer)) - set(self._known.values())
        assert len(theirs) == len(ours) <= 1, (theirs, ours)
        self._known.update(zip(theirs, ours, strict=True))

    def put_into(self, data: bytes) -> bytes:
        return re.sub(UUID, lambda found: self._known.get(found[0], found[0]), data)


@pytest.fixture(scope="module", params=RECORDED)
def replayed(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster]]:
    with EmbeddedCluster(generation=request.param, zookeeper=False) as cluster:
        cluster.create_topic(TOPIC, 2)
        coordinator_of(cluster)
        yield request.param, cluster


def test_a_member_by_hand_is_answered_as_by_a_real_broker(replayed: tuple[str, EmbeddedCluster]) -> None:
    generation, cluster = replayed
    ids, asked = Ids(), 0
    with Wire(cluster.port(0)) as wire:
        for stem in BY_HAND:
            whole = f"hand-{stem}" if "-" in stem else f"hand-{stem}-v*"
            name = name_of(generation, whole.removesuffix("-empty"))
            if name is None:
                continue  # OffsetFetch of version 2 is not there in 0.9
            name += "-empty" if stem.endswith("-empty") else ""
            request = ids.put_into(frame(generation, name.removesuffix("-empty") + "-request"))
            recorded = frame(generation, f"{name}-response")
            answer = wire.ask(request)
            ids.learn(recorded, answer)
            expected = ids.put_into(recorded)
            if stem.startswith("Offset"):  # partitions are named in any order
                assert sorted_members(answer[8:]) == sorted_members(expected[8:]), name
            else:
                assert answer[8:].hex() == expected[8:].hex(), name
            asked += 1
    assert asked >= len(BY_HAND) - 1


def test_groups_are_listed_as_by_a_real_broker(replayed: tuple[str, EmbeddedCluster]) -> None:
    generation, cluster = replayed
    with GroupClient(cluster.port(0), "h1", {"JoinGroup": 0} if generation == "0.9" else None) as member:
        member.enter()
        answer = member.wire.ask(frame(generation, "hand-ListGroups-v0-request"))
        listed = b"\0\x02h1\0\x08consumer"
        assert listed in answer
        assert listed in frame(generation, "hand-ListGroups-v0-response")
        member.leave()


def sorted_members(answer: bytes) -> tuple[bytes, int]:
    """What can be compared of an answer that names members in any order."""
    return bytes(sorted(answer)), len(answer)


@pytest.mark.parametrize("group", list(IN_ORDER))
def test_javas_members_are_answered_as_by_a_real_broker(replayed: tuple[str, EmbeddedCluster], group: str) -> None:
    """In flexible versions; where only requests of A were kept, up to the moment at which B comes."""
    generation, cluster = replayed
    if name_of(generation, f"java-{group}-A-JoinGroup-*-1") is None:
        pytest.skip("not recorded with this version")
    ids, compared = Ids(), 0
    counts: dict[str, int] = {}
    waiting: dict[str, str] = {}
    wires = {each: Wire(cluster.port(0)) for each in "AB"}
    try:
        for step in IN_ORDER[group].split():
            client, api = step.rstrip("*").split(":")
            if api:
                key = f"{client}-{api}"
                counts[key] = counts.get(key, 0) + 1
                name = name_of(generation, f"java-{group}-{key}-*-{counts[key]}")
                if name is None:
                    assert (client, generation) == ("B", "3.9") or api in ("SyncGroup", "LeaveGroup"), step
                    break
                wires[client].send(ids.put_into(frame(generation, f"{name}-request")))
            else:
                name = waiting.pop(client)
            if step.endswith("*"):
                waiting[client] = name
                _wait_parked(cluster, f"g-{group}", name)
                continue
            recorded, answer = frame(generation, f"{name}-response"), wires[client].receive()
            ids.learn(recorded, answer)
            expected = ids.put_into(recorded)
            assert sorted_members(answer[8:]) == sorted_members(expected[8:]), (step, answer.hex(), expected.hex())
            if len(re.findall(UUID, recorded)) < 4:
                assert answer[8:].hex() == expected[8:].hex(), step
            compared += 1
    finally:
        for wire in wires.values():
            wire.socket.close()
    assert compared >= 5


def _wait_parked(cluster: EmbeddedCluster, group: str, name: str) -> None:
    """Return when the broker has the request that waits: only then the next one may come."""
    broker = cluster.brokers[0]
    assert isinstance(broker, Broker011)
    wait_until(lambda: broker.groups.waiting(group) > 0, PATIENCE_S, f"{name} to wait")


# -- records -----------------------------------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """A record as it was written."""

    key: bytes
    value: bytes | None


def recorded_log(generation: str) -> bytes:
    return frame(generation, "consumer_offsets")


def records(generation: str) -> list[Recorded]:
    found = KAFKA011.decode_messages(recorded_log(generation), OFFSETS_TOPIC, 0, 0)
    return [Recorded(bytes(each.key or b""), None if each.value is None else bytes(each.value)) for each in found]


@pytest.mark.parametrize("generation", RECORDED)
def test_records_are_read_and_written_byte_by_byte_as_that_version_writes_them(generation: str) -> None:
    habits, kinds = GENERATIONS[generation].habits, set()
    for key, value in records(generation):
        group, where = decode_group_key(key), decode_offset_key(key)
        if group is not None:
            assert encode_group_key(group) == key
            if value is not None:
                found = decode_group(value)
                assert found is not None
                assert encode_group(found, habits.group_record) == value
                kinds.add("group")
        elif where is not None:
            assert encode_offset_key(where) == key
            assert value is not None
            stored = decode_offset(value)
            assert stored is not None
            assert encode_offset(stored, habits.offset_record, _topic_id(value)) == value
            kinds.add("offset")
    assert kinds == {"group", "offset"}


def _topic_id(value: bytes) -> bytes | None:
    """The id of the topic at the end of a value of version 4."""
    return value[-16:] if value[:2] == b"\0\4" else None


@pytest.mark.parametrize("generation", RECORDED)
def test_groups_of_a_real_broker_are_loaded_from_its_log(generation: str) -> None:
    with EmbeddedCluster(2, generation=generation, zookeeper=False) as cluster:
        cluster.create_topic(TOPIC, 2)
        was = coordinator_of(cluster)
        cluster.batch_log(OFFSETS_TOPIC, 0).append_as_is(recorded_log(generation))
        cluster.move_leader(OFFSETS_TOPIC, 0, 1 - was)
        with GroupClient(cluster.port(1 - was), "h1") as tool:
            state = ("Dead", "") if generation == "0.9" else ("Empty", "consumer")
            assert tool.describe()[1:3] == state
            assert [tool.committed(TOPIC, partition) for partition in (0, 1)] == [(0, 2), (0, 3)]
        if generation in ("2.8", "4.3"):
            with GroupClient(cluster.port(1 - was), "g-static") as tool:
                found = tool.describe()
                assert found[:4] == (0, "Stable", "consumer", "range")
                assert [each[0][:3] for each in found.members] == ["iA-", "iB-"]
                assert all(metadata and assignment for _, metadata, assignment in found.members)


def test_what_a_group_leaves_in_the_log_is_what_a_real_broker_writes(replayed: tuple[str, EmbeddedCluster]) -> None:
    """The same member by hand as in the recording: the same records, but for ids and times."""
    generation, cluster = replayed
    log = cluster.batch_log(OFFSETS_TOPIC, 0)
    start = log.end_offset
    with GroupClient(cluster.port(0), "h2", {"JoinGroup": 0} if generation == "0.9" else None) as member:
        member.send_join(rebalance_ms=20_000)
        member.joined()
        assert member.sync({member.member_id: b"x"}) == (0, b"x")
        assert member.commit(TOPIC, 2) == 0
        assert member.leave() == 0
    ours = [
        (bytes(each.key or b""), None if each.value is None else bytes(each.value))
        for each in records_from(log, OFFSETS_TOPIC, start)
    ]
    theirs = [each for each in records(generation) if b"\0\x02h1" in each.key]
    # The recorded member has committed an offset of the other partition, too.
    of_one = [each for each in theirs if not (decode_offset_key(each.key) or (0, 0, 0))[2]]
    assert [_plain(*each) for each in ours] == [_plain(*each).replace("h1", "h2") for each in of_one]


def _plain(key: bytes, value: bytes | None) -> str:
    """A record without ids, times and texts of members."""
    where, group = decode_offset_key(key), decode_group_key(key)
    if where is not None:
        assert value is not None
        stored: StoredOffset | None = decode_offset(value)
        assert stored is not None
        return f"{where} version {value[1]}: {stored._replace(commit_ms=0)}"
    if value is None:
        return f"{group}: none"
    found: GroupRecord | None = decode_group(value)
    assert found is not None
    members = [each._replace(member_id="", subscription=b"", assignment=b"") for each in found.members]
    version = struct.unpack_from(">h", value)[0]
    names = found.protocol_type, found.generation, found.protocol, bool(found.leader)
    return f"{group} version {version}: {names} {members}"
