"""A fetch that is sent again is encoded once, and an answer without messages that comes again is decoded once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simpleconsumer.calls.broker_client import FetchMemory
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, KAFKA08
from simpleconsumer.dialect_types import AnyRequest, Request, VersionedRequest
from simpleconsumer.kafka08 import requests as kafka08
from simpleconsumer.primitives import by_topic, encode_int32, encode_int64
from simpleconsumer.types import FetchedPartition, FetchRequest
from tests.fetching.feeding import ScriptedBroker, message_set

WANTED = [FetchRequest("t", number, 7, 1000) for number in range(3)]


def answer(high_watermark: int = 7, data: bytes = b"") -> bytearray:
    """The body of an answer of version 0 about the wanted partitions."""
    return bytearray(by_topic(
        ("t", encode_int32(number) + b"\0\0" + encode_int64(high_watermark) + encode_int32(len(data)) + data)
        for number in range(3)
    ))  # fmt: skip


class Memory:
    """A memory, and what it had made."""

    def __init__(self) -> None:
        self.memory = FetchMemory()
        self.made: list[list[FetchRequest]] = []

    def make(self, wanted: list[FetchRequest]) -> AnyRequest[list[FetchedPartition]]:
        self.made.append(wanted)
        body = kafka08.encode_fetch(wanted, 100, 1)
        return Request(kafka08.FETCH, 0, body, lambda data: kafka08.decode_fetch(data, wanted), True)

    def ask(self, wanted: Sequence[FetchRequest], how: object = None) -> Request[list[FetchedPartition]]:
        request = self.memory.request(wanted, how, self.make)
        assert isinstance(request, Request)
        return request


def test_the_same_request_is_made_once() -> None:
    memory = Memory()
    first = memory.ask(WANTED, (100, 1))
    assert memory.ask(list(WANTED), (100, 1)) is first
    assert memory.made == [WANTED]


@pytest.mark.parametrize("field", ["topic", "partition", "offset", "max_bytes", "leader_epoch"])
def test_a_request_that_differs_in_any_field_is_another_one(field: str) -> None:
    memory = Memory()
    first = memory.ask(WANTED)
    new: object = "other" if field == "topic" else 5
    other = [*WANTED[:2], WANTED[2]._replace(**{field: new})]
    assert memory.ask(other) is not first
    assert memory.made == [WANTED, other]


def test_another_wait_is_another_request() -> None:
    memory = Memory()
    assert memory.ask(WANTED, (5, 1)) is not memory.ask(WANTED, (100, 1))


def test_a_list_that_its_caller_changes_later_is_not_taken_for_the_last_one() -> None:
    memory, wanted = Memory(), list(WANTED)
    first = memory.ask(wanted)
    wanted[0] = wanted[0]._replace(offset=8)
    assert memory.ask(wanted) is not first


def test_an_error_of_the_maker_is_raised_each_time() -> None:
    memory = FetchMemory()

    def make(wanted: list[FetchRequest]) -> AnyRequest[list[FetchedPartition]]:
        raise ValueError("no such offset")

    for _ in range(2):
        with pytest.raises(ValueError, match="no such offset"):
            memory.request(WANTED, None, make)


def test_an_equal_answer_without_messages_is_the_same_list() -> None:
    decode = Memory().ask(WANTED).decode
    found = decode(memoryview(answer()))
    assert [each.high_watermark for each in found] == [7, 7, 7]
    assert decode(memoryview(answer())) is found
    assert [each.high_watermark for each in decode(memoryview(answer(8)))] == [8, 8, 8]
    assert [each.high_watermark for each in decode(memoryview(answer(7)))] == [7, 7, 7]


def test_an_answer_with_messages_is_decoded_each_time() -> None:
    decode = Memory().ask(WANTED).decode
    data = message_set(7, 9)
    first, second = decode(memoryview(answer(9, data))), decode(memoryview(answer(9, data)))
    assert first is not second
    assert [bytes(each.message_set) for each in second] == [data] * 3


def test_what_is_kept_is_no_view_of_memory_that_the_next_answer_uses() -> None:
    received = answer()
    found = Memory().ask(WANTED).decode(memoryview(received))
    received.clear()  # impossible while there are views of it
    assert [bytes(each.message_set) for each in found] == [b""] * 3


def test_each_version_remembers_its_own_answer() -> None:
    dialect = KAFKA011
    asked = FetchMemory().request(WANTED, None, lambda wanted: dialect.fetch(wanted, 100, 1, 0))
    assert isinstance(asked, VersionedRequest)
    assert asked.at(4) is asked.at(4)
    assert asked.at(4).body != asked.at(11).body
    assert asked.at(4).decode is not asked.at(11).decode


def test_callers_may_change_the_list_that_they_get() -> None:
    with ScriptedBroker() as broker, SimpleConsumer("127.0.0.1", broker.port, dialect=KAFKA08) as consumer:
        for _ in range(3):
            found = consumer.multifetch(WANTED, 10)
            assert len(found) == 3
            found.clear()
