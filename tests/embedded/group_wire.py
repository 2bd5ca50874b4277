"""Requests of members on a connection, one after the other, in chosen versions; answers may be waited for later."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_wire import Wire

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import VersionedRequest
from simpleconsumer.messages import apis
from simpleconsumer.messages.api import Api
from simpleconsumer.types import (
    GenerationMember,
    JoinedGroup,
    JoiningMember,
    LeavingMember,
    OffsetAndMetadata,
    TopicPartition,
)
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.waiting import wait_until

__all__ = ["RANGE", "Described", "GroupClient", "coordinator_of", "find_coordinator"]

RANGE = (("range", b"r"),)
PATIENCE_S = 20.0
_DESCRIBE, _LIST = Api(15, "DescribeGroups", (0,)), Api(16, "ListGroups", (0, 4), 3)
_HEAD = 8


class Described(NamedTuple):
    """A group: error code, state, kind, assignor, and (id, metadata, assignment) of its members."""

    code: int
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[tuple[str, bytes, bytes], ...] = ()


def find_coordinator(port: int, group: str = "any") -> None:
    """Return when there is a coordinator."""
    with Wire(port) as wire:

        def found() -> bool:
            answer = wire.ask(apis.FIND_COORDINATOR.frame(0, 1, "c", _text(group)))
            return bool(answer[_HEAD : _HEAD + 2] == b"\0\0")

        wait_until(found, PATIENCE_S, "a coordinator")


def coordinator_of(cluster: EmbeddedCluster, group: str = "any") -> int:
    """The broker that coordinates all groups, once there is one."""
    find_coordinator(cluster.port(min(each for each, broker in cluster.brokers.items() if broker.running)), group)
    leader = cluster.leader(OFFSETS_TOPIC, 0)
    assert leader is not None
    return leader


class GroupClient:
    """One client of one group; the newest versions that it speaks can be chosen."""

    def __init__(self, port: int, group: str, versions: Mapping[str, int] | None = None, client_id: str = "c") -> None:
        self.wire = Wire(port)
        self.group = group
        self.versions = {"JoinGroup": 1, "SyncGroup": 0, "Heartbeat": 0, "LeaveGroup": 0, "OffsetCommit": 2,
                         "OffsetFetch": 1, **(versions or {})}  # fmt: skip
        self._client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.instance_id: str | None = None

    def __enter__(self) -> GroupClient:
        return self

    def __exit__(self, *unused: object) -> None:
        self.wire.socket.close()

    def send(self, api: Api, body: bytes, version: int | None = None) -> None:
        chosen = self.versions.get(api.name, 0) if version is None else version
        self.wire.send(api.frame(chosen, 7, self._client_id, body))

    def receive(self) -> bytes:
        return self.wire.receive()[_HEAD:]

    def ask(self, request: VersionedRequest[Any]) -> None:
        """Send a request as the client encodes it; `_answer` decodes what comes."""
        asked = request.at(self.versions[request.api])
        self._decode = asked.decode
        self.wire.send(KAFKA011.frame(asked, 7, self._client_id))

    def _answer(self) -> Any:
        return self._decode(memoryview(self.receive()))

    @property
    def who(self) -> GenerationMember:
        return GenerationMember(self.group, self.generation, self.member_id, self.instance_id)

    # -- members

    def send_join(
        self, protocols: tuple[tuple[str, bytes], ...] = RANGE, session_ms: int = 10_000, rebalance_ms: int = 10_000
    ) -> None:
        member = JoiningMember(self.group, self.member_id, self.instance_id)
        self.ask(KAFKA011.join_group(member, protocols, session_ms, rebalance_ms))

    def joined(self) -> JoinedGroup:
        """The answer to JoinGroup, whose id and generation are ours from now on."""
        found: JoinedGroup = self._answer()
        if found.error_code in (0, 79):
            self.member_id, self.generation = found.member_id, found.generation
        return found

    def join(self, **more: int) -> JoinedGroup:
        self.send_join(**more)  # type: ignore[arg-type]
        return self.joined()

    def send_sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        self.ask(KAFKA011.sync_group(self.who, assignments or {}))

    def synced(self) -> tuple[int, bytes]:
        found: tuple[int, bytes] = self._answer()
        return found

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> tuple[int, bytes]:
        self.send_sync(assignments)
        return self.synced()

    def enter(self, **more: int) -> None:
        """Be the only member of a stable group."""
        found = self.join(**more)
        assert found.error_code == 0, found
        assert self.sync({self.member_id: b"all"}) == (0, b"all")

    def beat(self) -> int:
        self.ask(KAFKA011.heartbeat(self.who))
        return int(self._answer())

    def leave(self) -> int:
        self.ask(KAFKA011.leave_group(self.group, LeavingMember(self.member_id, self.instance_id)))
        return int(self._answer())

    # -- offsets

    def commit(self, topic: str, offset: int, partition: int = 0, *, as_nobody: bool = False, text: str = "m") -> int:
        who = GenerationMember(self.group, -1, "") if as_nobody else self.who
        self.ask(KAFKA011.commit_offsets_as(who, {TopicPartition(topic, partition): OffsetAndMetadata(offset, text)}))
        [code] = self._answer()
        return int(code)

    def committed(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Error code and offset."""
        self.ask(KAFKA011.fetch_offsets(self.group, [TopicPartition(topic, partition)]))
        [(code, found)] = self._answer()
        return code, found.offset

    # -- what tools ask

    def describe(self) -> Described:
        self.send(_DESCRIBE, struct.pack(">i", 1) + _text(self.group))
        answer = _Texts(self.receive())
        assert answer.int32() == 1
        code, name, state, kind, protocol = answer.int16(), *(answer.text() for _ in range(4))
        assert name == self.group
        members = []
        for _ in range(answer.int32()):
            member_id, client_id, host = answer.text(), answer.text(), answer.text()
            assert host == ("/127.0.0.1" if client_id else host)
            members.append((member_id, answer.sized(), answer.sized()))
        return Described(code, state, kind, protocol, tuple(members))

    def listed(self) -> tuple[int, dict[str, str]]:
        """Error code, and the kind of each group by its name."""
        self.send(_LIST, b"", 0)
        answer = _Texts(self.receive())
        return answer.int16(), {answer.text(): answer.text() for _ in range(answer.int32())}

    def listed_in(self, *states: str) -> dict[str, str]:
        """The state of each group by its name, of those in some states: version 4."""
        names = b"".join(bytes([len(each) + 1]) + each.encode() for each in states)
        self.send(_LIST, bytes([len(states) + 1]) + names + b"\0", 4)
        answer = self.receive()
        found, at = {}, 1 + 4 + 2 + 1
        for _ in range(answer[at - 1] - 1):
            texts = []
            for _ in range(3):
                texts.append(answer[at + 1 : at + answer[at]].decode())
                at += answer[at]
            at += 1
            found[texts[0]] = texts[2]
        return found

    def delete(self) -> int:
        self.send(apis.DELETE_GROUPS, struct.pack(">i", 1) + _text(self.group))
        return int(struct.unpack_from(">h", self.receive(), 4 + 4 + 2 + len(self.group))[0])


class _Texts:
    """Reads an answer front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def int16(self) -> int:
        self._at += 2
        return int(struct.unpack_from(">h", self._data, self._at - 2)[0])

    def int32(self) -> int:
        self._at += 4
        return int(struct.unpack_from(">i", self._data, self._at - 4)[0])

    def _take(self, length: int) -> bytes:
        self._at += max(length, 0)
        return self._data[self._at - max(length, 0) : self._at]

    def text(self) -> str:
        return self._take(self.int16()).decode()

    def sized(self) -> bytes:
        return self._take(self.int32())


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
