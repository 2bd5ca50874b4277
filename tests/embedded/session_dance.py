"""Fetches with sessions, in an order that shows what a broker reports to a client again.

`session_dance` can be sent to any broker: what it returns does not depend on the numbers of sessions, so two brokers
can be compared by it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from broker_wire import Wire, request, string

from simpleconsumer.kafka011.record_encode import encode_record_batch

PRODUCE, FETCH, VERSION = 0, 1, 7
Where = tuple[str, int]


class Answer(tuple[int, int, dict[Where, tuple[int, int, int]]]):
    """Error code, session, and of each partition error code, high watermark and how many bytes came."""

    @property
    def session(self) -> int:
        return self[1]

    def reported(self) -> object:
        """The same without the number of the session."""
        return self[0], self[1] != 0, list(self[2].items())


class SessionClient:
    """A client on one connection, with two partitions of a topic and one of another."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire = wire
        self.topic = topic

    def produce(self, partition: int) -> None:
        batch = encode_record_batch([b"value"])
        body = struct.pack(">hhii", -1, -1, 5000, 1) + string(self.topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        answer = self._wire.ask(request(PRODUCE, body, version=3))
        assert answer[8 + 4 + 2 + len(self.topic) + 8 :][:2] == b"\0\0"

    def fetch(
        self,
        session: int,
        epoch: int,
        named: Mapping[int, int] | None = None,
        forgotten: Sequence[int] = (),
    ) -> Answer:
        """Ask for partitions of the topic, each from an offset."""
        body = struct.pack(">iiiibii", -1, 50, 1, 1 << 20, 0, session, epoch)
        rows = b"".join(struct.pack(">iqqi", number, at, -1, 1 << 16) for number, at in (named or {}).items())
        body += self._topics(rows, len(named or {}))
        body += self._topics(struct.pack(f">{len(forgotten)}i", *forgotten), len(forgotten))
        return self._read(self._wire.ask(request(FETCH, body, version=VERSION))[8:])

    def _topics(self, rows: bytes, count: int) -> bytes:
        return struct.pack(">i", 1) + string(self.topic) + struct.pack(">i", count) + rows if count else bytes(4)

    def _read(self, answer: bytes) -> Answer:
        code, session, topics = struct.unpack_from(">hii", answer, 4)
        at, found = 14, {}
        for _ in range(topics):
            length, partitions = struct.unpack_from(f">h{len(self.topic)}xi", answer, at)
            assert length == len(self.topic)
            at += 6 + length
            for _ in range(partitions):
                number, error, high_watermark, _, _, aborted, size = struct.unpack_from(">ihqqqii", answer, at)
                assert aborted <= 0
                found[self.topic, number] = (error, high_watermark, max(size, 0))
                at += 38 + max(size, 0)
        assert at == len(answer)
        return Answer((code, session, found))


def session_dance(client: SessionClient) -> dict[str, object]:
    """What was answered, by what was asked; the topic must be new, with three partitions."""
    seen: dict[str, object] = {}

    def note(asked: str, answer: Answer) -> Answer:
        seen[asked] = answer.reported()
        return answer

    client.produce(1)
    note("without a session", client.fetch(0, -1, {0: 0, 1: 0}))
    session = note("a session begins", client.fetch(0, 0, {0: 0, 1: 0, 2: 0, 9: 0})).session
    note("the same again", client.fetch(session, 1))
    note("one read on", client.fetch(session, 2, {1: 1}))
    note("nothing is new", client.fetch(session, 3))
    client.produce(0)
    client.produce(2)
    note("two have messages", client.fetch(session, 4))
    note("one of them read on", client.fetch(session, 5, {0: 1}))
    note("out of range", client.fetch(session, 6, {2: 77}))
    note("back in range", client.fetch(session, 7, {2: 1}))
    note("and again", client.fetch(session, 8))
    note("forgotten", client.fetch(session, 9, forgotten=[0, 9]))
    client.produce(0)
    client.produce(1)
    note("what is forgotten does not come", client.fetch(session, 10))
    note("an old epoch", client.fetch(session, 3))
    note("an epoch ahead", client.fetch(session, 99))
    note("and the next one still goes", client.fetch(session, 11, {1: 2}))
    note("added again", client.fetch(session, 12, {0: 0}))
    note("ended", client.fetch(session, -1))
    note("after its end", client.fetch(session, 13))
    note("one that there never was", client.fetch(12345, 1, {0: 0}))
    other = note("another session", client.fetch(0, 0, {0: 0})).session
    again = note("which begins anew", client.fetch(other, 0, {1: 0})).session
    note("the one before it", client.fetch(other, 1))
    note("all forgotten", client.fetch(again, 1, forgotten=[1]))
    note("then it is gone", client.fetch(again, 2))
    note("a session of nothing", client.fetch(0, 0))
    return seen
