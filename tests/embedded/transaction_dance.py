"""Requests of transactional producers, written byte by byte, in an order that shows what a coordinator makes of them.

`dance` can be sent to any broker: what it returns depends on neither producer ids nor times, so two brokers can be
compared by it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from broker_wire import Wire, request, string

from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from zkconsumer.testing.waiting import wait_until

PRODUCE, FETCH, LIST_OFFSETS, FIND_COORDINATOR, INIT, ADD, END = 0, 1, 2, 10, 22, 24, 26
CONCURRENT = 51
PATIENCE_S = 30.0
FIRST_FLEXIBLE = {INIT: 2, ADD: 3, END: 3}
NOT_READY = (14, 15, 16)
"""A coordinator that is just being made."""


class Producer(NamedTuple):
    """Id and epoch."""

    producer_id: int
    epoch: int


NOBODY = Producer(-1, -1)


class Client:
    """Sends requests on one connection, each in the newest version up to a given one."""

    def __init__(self, wire: Wire, topic: str, newest: dict[int, int]) -> None:
        self._wire = wire
        self.topic = topic
        self._newest = newest

    def _ask(self, api: int, body: bytes, version: int, *, is_flexible: bool = False) -> bytes:
        """The body of the answer."""
        return self._wire.ask(request(api, (b"\0" if is_flexible else b"") + body, version=version))[
            9 if is_flexible else 8 :
        ]

    def find(self, name: str) -> int:
        """Error code."""
        answer = self._ask(FIND_COORDINATOR, string(name) + b"\1", 1)
        return int(struct.unpack_from(">h", answer, 4)[0])

    def init(
        self, name: str, version: int, before: Producer = NOBODY, timeout_ms: int = 60_000
    ) -> tuple[int, Producer]:
        version = min(version, self._newest[INIT])
        is_flexible = version >= FIRST_FLEXIBLE[INIT]
        body = _text(name, is_flexible) + struct.pack(">i", timeout_ms)
        if version >= 3:
            body += struct.pack(">qh", *before)
        answer = self._ask(INIT, body + (b"\0" if is_flexible else b""), version, is_flexible=is_flexible)
        code, producer_id, epoch = struct.unpack_from(">hqh", answer, 4)
        assert len(answer) == 16 + is_flexible
        return code, Producer(producer_id, epoch)

    def started(self, name: str, version: int = 4, **more: int) -> Producer:
        """Id and epoch, once no transaction is being ended."""
        found: list[Producer] = []

        def ready() -> bool:
            code, producer = self.init(name, version, **more)
            found.append(producer)
            assert code in (0, CONCURRENT, *NOT_READY), code
            return code == 0

        wait_until(ready, PATIENCE_S, f"{name} to start")
        return found[-1]

    def add(self, name: str, producer: Producer, version: int, partitions: tuple[int, ...] = (0,)) -> list[int]:
        """Error codes of the partitions of the topic, once no transaction is being ended."""
        version = min(version, self._newest[ADD])
        is_flexible = version >= FIRST_FLEXIBLE[ADD]
        tags = b"\0" if is_flexible else b""
        body = _text(name, is_flexible) + struct.pack(">qh", *producer) + _count(1, is_flexible)
        body += _text(self.topic, is_flexible) + _count(len(partitions), is_flexible)
        body += struct.pack(f">{len(partitions)}i", *partitions) + tags + tags
        codes: list[int] = []

        def answered() -> bool:
            answer = self._ask(ADD, body, version, is_flexible=is_flexible)
            at = 4 + len(_count(1, is_flexible) + _text(self.topic, is_flexible) + _count(1, is_flexible))
            rows = [struct.unpack_from(">ih", answer, at + n * (6 + len(tags))) for n in range(len(partitions))]
            codes[:] = [code for _, code in sorted(rows)]  # brokers name them in orders of their own
            assert len(answer) == at + len(partitions) * (6 + len(tags)) + 2 * len(tags)
            return codes[0] != CONCURRENT

        wait_until(answered, PATIENCE_S, f"the transaction of {name} to end")
        return codes

    def end(self, name: str, producer: Producer, version: int, *, commit: bool) -> int:
        """Error code, once a transaction that is being ended has ended."""
        version = min(version, self._newest[END])
        is_flexible = version >= FIRST_FLEXIBLE[END]
        tags = b"\0" if is_flexible else b""
        body = _text(name, is_flexible) + struct.pack(">qhb", *producer, commit) + tags
        codes: list[int] = []

        def answered() -> bool:
            answer = self._ask(END, body, version, is_flexible=is_flexible)
            assert len(answer) == 6 + len(tags)
            codes.append(struct.unpack_from(">h", answer, 4)[0])
            return codes[-1] != CONCURRENT

        wait_until(answered, PATIENCE_S, f"the transaction of {name} to end")
        return codes[-1]

    def produce(self, name: str | None, producer: Producer, sequence: int, value: bytes, partition: int = 0) -> int:
        """Error code."""
        numbers = BatchProducer(*producer, sequence, is_transactional=name is not None)
        batch = encode_record_batch([value], timestamp_ms=time.time_ns() // 1_000_000, producer=numbers)
        body = (b"\xff\xff" if name is None else string(name)) + struct.pack(">hii", -1, 5000, 1)
        body += string(self.topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
        answer = self._ask(PRODUCE, body, 3)
        return int(struct.unpack_from(">h", answer, 4 + 2 + len(self.topic) + 4 + 4)[0])

    def stable_offset(self, partition: int = 0) -> int:
        body = struct.pack(">ibi", -1, 1, 1) + string(self.topic) + struct.pack(">iiq", 1, partition, -1)
        answer = self._ask(LIST_OFFSETS, body, 2)
        return int(struct.unpack_from(">q", answer, len(answer) - 8)[0])

    def wait_stable(self, offset: int) -> None:
        wait_until(lambda: self.stable_offset() >= offset, PATIENCE_S, f"offset {offset} to be stable")

    def fetch(self) -> tuple[list[tuple[int, ...]], list[tuple[object, ...]]]:
        """Aborted transactions and batches of partition 0, with producer ids numbered in the order of their batches."""
        body = struct.pack(">iiiibi", -1, 100, 1, 1 << 20, 1, 1) + string(self.topic)
        answer = self._ask(FETCH, body + struct.pack(">iiqi", 1, 0, 0, 1 << 20), 4)
        at = 4 + 4 + 2 + len(self.topic) + 4
        _, code, _, _, count = struct.unpack_from(">ihqqi", answer, at)
        assert code == 0
        aborted = [struct.unpack_from(">qq", answer, at + 26 + 16 * n) for n in range(max(count, 0))]
        batches = list(_batches(answer[at + 26 + 16 * len(aborted) + 4 :]))
        ids = list(dict.fromkeys(each[0] for each in batches))
        return (
            sorted((ids.index(producer_id), offset) for producer_id, offset in aborted),
            [(ids.index(producer_id), *rest) for producer_id, *rest in batches],
        )


def _batches(data: bytes) -> Iterator[tuple[int, ...]]:
    """Producer id, offset, attributes, epoch, sequence; and of markers key and type of value."""
    at = 0
    while at + 61 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        attributes, _, _, _, producer_id, epoch, sequence = struct.unpack_from(">hiqqqhi", data, at + 21)
        marker = data[at + 61 : at + 12 + size] if attributes & 32 else b""
        yield producer_id, offset, attributes, epoch, sequence, *marker[:-5]  # the last bytes: the coordinator's epoch
        at += 12 + size


def _text(text: str, is_flexible: bool) -> bytes:
    return bytes([len(text) + 1]) + text.encode() if is_flexible else string(text)


def _count(count: int, is_flexible: bool) -> bytes:
    return bytes([count + 1]) if is_flexible else struct.pack(">i", count)


def dance(client: Client) -> dict[str, object]:
    """What a coordinator answers, by what was asked; the topic must be new, with two partitions."""
    seen: dict[str, object] = {}
    name, other = f"{client.topic}-one", f"{client.topic}-two"
    wait_until(lambda: client.find(name) == 0, PATIENCE_S, "a coordinator")
    first = client.started(name)
    seen["the first epoch"] = first.epoch
    seen["an end without transactions"] = [client.end(name, first, v, commit=c) for v in (1, 4) for c in (True, False)]
    second = client.started(name)
    seen["a second start"] = (second.producer_id == first.producer_id, second.epoch)
    seen["what the first may do"] = [
        *(client.add(name, first, version) for version in (1, 4)),
        *(client.end(name, first, version, commit=True) for version in (1, 4)),
    ]
    unknown = Producer(second.producer_id + 1_000_000, second.epoch)
    seen["what an unknown producer may do"] = [client.add(name, unknown, 1), client.end(name, unknown, 1, commit=True)]
    seen["unknown and empty names"] = [
        [client.add(each, second, 1), client.end(each, second, 1, commit=True)] for each in (other, "")
    ]
    seen["an empty name, and forbidden times"] = [
        client.init("", 1)[0], client.init(name, 1, timeout_ms=900_001)[0], client.init(name, 1, timeout_ms=0)[0]
    ]  # fmt: skip
    seen["a partition that there is not"] = [client.add(name, second, v, (0, 1, 9)) for v in (1, 4)]
    seen["added"] = [client.add(name, second, version, (0, 1)) for version in (1, 4)]
    seen["produced"] = [client.produce(name, second, n, b"lost %d" % n) for n in (0, 1)]
    seen["a start with a transaction"] = client.init(name, 1)[0]
    third = client.started(name)
    seen["the start after it"] = third.epoch
    seen["the fenced one"] = [
        client.produce(name, second, 2, b"late"), client.add(name, second, 1), client.end(name, second, 1, commit=True)
    ]  # fmt: skip
    seen["added again"] = client.add(name, third, 4)
    seen["produced again"] = client.produce(name, third, 0, b"kept")
    seen["ended, and once more, and otherwise"] = [
        client.end(name, third, version, commit=commit) for version, commit in ((4, True), (4, True), (1, False))
    ]
    seen["aborted, and once more, and otherwise"] = [
        client.add(name, third, 1), client.produce(name, third, 1, b"lost 3"),
        *(client.end(name, third, version, commit=commit) for version, commit in ((1, False), (4, False), (1, True))),
    ]  # fmt: skip
    client.wait_stable(7)
    seen["fetched"] = client.fetch()
    return seen


def dance_without_adding(client: Client) -> dict[str, object]:
    """What becomes of batches for partitions that were not added to a transaction."""
    seen: dict[str, object] = {}
    name = f"{client.topic}-not-added"
    wait_until(lambda: client.find(name) == 0, PATIENCE_S, "a coordinator")
    producer = client.started(name)
    seen["before a transaction"] = [client.produce(name, producer, 0, b"a") for _ in range(2)]
    seen["another partition added"] = client.add(name, producer, 3, (1,))
    seen["still not added, and added"] = [client.produce(name, producer, 0, b"a", partition) for partition in (0, 1)]
    seen["the next one"] = client.produce(name, producer, 1, b"b", 1)
    seen["added"] = [client.add(name, producer, 3), client.produce(name, producer, 0, b"a")]
    seen["ended"] = client.end(name, producer, 3, commit=True)
    return seen


def dance_of_epochs(client: Client) -> dict[str, object]:
    """What a coordinator of Kafka 2.5 or later answers to producers that want another epoch of their own."""
    seen: dict[str, object] = {}
    name = f"{client.topic}-epochs"
    wait_until(lambda: client.find(name) == 0, PATIENCE_S, "a coordinator")
    first = client.started(name)
    code, second = client.init(name, 4, first)
    seen["with its epoch"] = (code, second.epoch)
    seen["with its epoch once more"] = [(code, each.epoch) for code, each in [client.init(name, 4, first)]]
    _, third = client.init(name, 4, second)
    seen["with an old epoch"] = [client.init(name, version, first) for version in (3, 4)]
    seen["with another id"] = [client.init(name, 4, Producer(first.producer_id + 1_000_000, 0))]
    client.add(name, third, 4)
    seen["with a transaction"] = client.init(name, 4, third)
    return seen


def dance_of_time(client: Client) -> dict[str, object]:
    """What is left of a transaction that is open for too long."""
    seen: dict[str, object] = {}
    name = f"{client.topic}-late"
    wait_until(lambda: client.find(name) == 0, PATIENCE_S, "a coordinator")
    first = client.started(name, timeout_ms=1000)
    client.add(name, first, 1)
    client.produce(name, first, 0, b"late")
    seen["open"] = client.stable_offset()
    client.wait_stable(2)
    seen["its end"] = [client.end(name, first, version, commit=c) for version in (1, 4) for c in (True, False)]
    seen["its batches"] = [client.produce(name, first, 1, b"later")]
    second = client.started(name)
    seen["the next start"] = second.epoch
    seen["fetched"] = client.fetch()
    return seen
