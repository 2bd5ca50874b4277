"""Interceptors are called in their order, and the failure of one does not stop the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.records import (
    ConsumerInterceptors,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    TimestampType,
)

A = TopicPartition("clicks", 0)
OFFSETS = {A: OffsetAndMetadata(3)}


def records(*offsets: int) -> ConsumerRecords[Any, Any]:
    return ConsumerRecords(
        {A: [ConsumerRecord(*A, each, None, TimestampType.NO_TIMESTAMP_TYPE, None, b"v") for each in offsets]}
    )


class Appends:
    """Adds a record with its own number as the offset, and notes what it sees."""

    def __init__(self, number: int, seen: list[tuple[str, int]]) -> None:
        self.number = number
        self.seen = seen

    def on_consume(self, found: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        return records(*(each.offset for each in found), self.number)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        assert offsets == OFFSETS
        self.seen.append(("on_commit", self.number))

    def close(self) -> None:
        self.seen.append(("close", self.number))


class Fails(Appends):
    def on_consume(self, found: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


class ForgetsToReturn(Appends):
    def on_consume(self, found: ConsumerRecords[Any, Any]) -> Any:
        super().on_consume(found)


class CannotBeClosed:
    def on_consume(self, found: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        return found

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        pass


def offsets_of(found: ConsumerRecords[Any, Any]) -> list[int]:
    return [each.offset for each in found]


def test_each_interceptor_gets_what_the_one_before_returned() -> None:
    seen: list[tuple[str, int]] = []
    chain = ConsumerInterceptors([Appends(1, seen), CannotBeClosed(), Appends(2, seen)])
    assert offsets_of(chain.on_consume(records(0))) == [0, 1, 2]
    chain.on_commit(OFFSETS)
    chain.close()
    assert seen == [("on_commit", 1), ("on_commit", 2), ("close", 1), ("close", 2)]


def test_one_that_fails_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, int]] = []
    chain = ConsumerInterceptors([Appends(1, seen), Fails(2, seen), Appends(3, seen)])
    assert offsets_of(chain.on_consume(records(0))) == [0, 1, 3]
    chain.on_commit(OFFSETS)
    chain.close()
    assert seen == [("on_commit", 1), ("on_commit", 3), ("close", 1), ("close", 3)]
    assert caplog.messages == [f"{name} of interceptor Fails failed" for name in ("on_consume", "on_commit", "close")]
    assert all(line.exc_info is not None for line in caplog.records)


def test_records_are_not_lost_where_return_was_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    chain = ConsumerInterceptors([ForgetsToReturn(1, [])])
    assert offsets_of(chain.on_consume(records(0))) == [0]
    assert "returned NoneType instead of ConsumerRecords" in caplog.messages[0]


def test_without_interceptors_records_pass() -> None:
    chain = ConsumerInterceptors([])
    found = records(0)
    assert chain.on_consume(found) is found
    assert not chain


def test_an_exit_is_no_failure() -> None:
    class Exits(CannotBeClosed):
        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ConsumerInterceptors([Exits()]).on_commit(OFFSETS)
