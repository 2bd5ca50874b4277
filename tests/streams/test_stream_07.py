"""Streams of Kafka 0.7: positions are those of whole entries, and an entry that was begun is finished."""

from __future__ import annotations

import pytest

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import CrcMismatch
from simpleconsumer.kafka07.requests import encode_wrapper
from simpleconsumer.types import TopicPartition
from tests.fetching.feeding import Drained, Feed, take
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.fetching.partition_queue import Chunk, PartitionQueue

PLAIN = bytes(KAFKA07.encode_messages([b"before"], "none", None, None))
ENTRY = bytes(KAFKA07.encode_messages([b"one", b"two", b"three"], "gzip", None, None))
BEHIND = bytes(KAFKA07.encode_messages([b"behind"], "none", None, None))
DATA = PLAIN + ENTRY + BEHIND
START = 1000
ENTRY_AT = START + len(PLAIN)
BEHIND_AT = ENTRY_AT + len(ENTRY)
END = START + len(DATA)
VALUES = [b"before", b"one", b"two", b"three", b"behind"]


def chunk(data: bytes = DATA) -> Chunk:
    return Chunk(data, START + len(data), KAFKA07, data_offset=START)


def fed(feed: Feed, data: bytes = DATA) -> PartitionQueue:
    queue = PartitionQueue(TopicPartition("t", "0-1"), START, feed.stream, feed.budget)
    queue.push(chunk(data))
    return queue


def test_positions_are_those_of_whole_entries() -> None:
    feed = Feed()
    queue = fed(feed)
    messages, done = [], []
    for _ in VALUES:
        messages.append(next(feed.stream))
        done.append(queue.done_position())
    assert [message.value for message in messages] == VALUES
    assert [message.offset for message in messages] == [START, ENTRY_AT, ENTRY_AT, ENTRY_AT, BEHIND_AT]
    assert [message.next_offset for message in messages] == [ENTRY_AT, ENTRY_AT, ENTRY_AT, BEHIND_AT, END]
    assert [message.index for message in messages] == [0, 0, 1, 2, 0]
    assert done == [START, ENTRY_AT, ENTRY_AT, ENTRY_AT, BEHIND_AT]


def test_a_revocation_within_an_entry_waits_for_the_rest_of_it_and_for_no_more() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 2)
    drained = Drained()
    queue.end(drained)
    assert not drained.positions
    assert [next(feed.stream).value for _ in range(2)] == [b"two", b"three"]
    assert not drained.positions
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert drained.positions == [BEHIND_AT]
    assert feed.budget.charged_bytes() == 0


def test_a_revocation_between_two_entries_waits_for_the_message_in_hand_alone() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 1)
    drained = Drained()
    queue.end(drained)
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert drained.positions == [ENTRY_AT]


def test_a_revocation_with_the_last_message_of_an_entry_in_hand_waits_for_it_alone() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 4)
    drained = Drained()
    queue.end(drained)
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert drained.positions == [BEHIND_AT]


def test_a_drain_that_expires_within_an_entry_ends_at_its_start() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 3)
    queue.end(Drained())
    assert queue.cancel() == ENTRY_AT
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)


def test_a_commit_within_an_entry_does_not_end_a_drain() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 2)
    queue.committed = ENTRY_AT
    drained = Drained()
    queue.end(drained)
    queue.settle_if_done()
    assert not drained.positions
    take(feed.stream, 2)
    queue.committed = BEHIND_AT
    queue.settle_if_done()
    assert drained.positions == [BEHIND_AT]


def test_an_interrupt_within_an_entry_repeats_and_loses_nothing() -> None:
    feed = Feed()
    fed(feed)
    got = [next(feed.stream).value]
    for _ in range(3):
        feed.stream._interrupted(None, KeyboardInterrupt())
        got.append(next(feed.stream).value)
    got.append(next(feed.stream).value)
    assert got == VALUES


def test_a_revocation_behind_an_interrupt_within_an_entry_still_finishes_it() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 2)
    feed.stream._interrupted(None, KeyboardInterrupt())
    drained = Drained()
    queue.end(drained)
    assert [next(feed.stream).value for _ in range(2)] == [b"two", b"three"]
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert drained.positions == [BEHIND_AT]


def test_without_a_lease_the_rest_of_an_entry_is_not_delivered() -> None:
    feed = Feed()
    queue = fed(feed)
    take(feed.stream, 2)
    queue.end(Drained())
    feed.lease.until = 0.0
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    feed.lease.until = float("inf")
    assert next(feed.stream).value == b"two"


def test_a_bad_message_within_an_entry_counts_as_one_of_it() -> None:
    inside = bytearray(KAFKA07.encode_messages([b"one", b"two", b"three"], "none", None, None))
    inside[len(inside) // 2] ^= 1  # in the payload of the second one
    data = PLAIN + encode_wrapper(bytes(inside), "gzip") + BEHIND
    feed = Feed()
    queue = fed(feed, data)
    take(feed.stream, 2)
    with pytest.raises(CrcMismatch, match="message 1 of the entry"):
        next(feed.stream)
    drained = Drained()
    queue.end(drained)
    assert next(feed.stream).value == b"three"
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert drained.positions == [START + len(data) - len(BEHIND)]


EMPTY = encode_wrapper(b"", "gzip")


@pytest.mark.parametrize("as_batches", [False, True])
def test_entries_without_messages_at_the_end_of_a_chunk_are_done_with_it(as_batches: bool) -> None:
    feed = Feed()
    queue = fed(feed, PLAIN + EMPTY)
    behind = START + len(PLAIN + EMPTY)
    queue.push(Chunk(EMPTY, behind + len(EMPTY), KAFKA07, data_offset=behind))
    behind += len(EMPTY)
    queue.push(Chunk(BEHIND, behind + len(BEHIND), KAFKA07, data_offset=behind))
    if as_batches:
        batches = feed.stream.batches()
        assert [rows(next(batches)) for _ in range(2)] == [[b"before"], [b"behind"]]
    else:
        assert [message.value for message in take(feed.stream, 2)] == [b"before", b"behind"]
    assert queue.done_position() == behind
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert queue.done_position() == behind + len(BEHIND)
    assert feed.budget.charged_bytes() == 0


def test_a_revocation_within_an_entry_that_ends_without_a_message_is_over_with_its_last_error() -> None:
    bad = bytearray(KAFKA07.encode_messages([b"bad"], "none", None, None))
    bad[-1] ^= 1
    entry = encode_wrapper(PLAIN + bytes(bad) + EMPTY, "gzip")
    feed = Feed()
    queue = fed(feed, entry)
    assert next(feed.stream).value == b"before"
    drained = Drained()
    queue.end(drained)
    with pytest.raises(CrcMismatch, match="message 1 of the entry"):
        next(feed.stream)
    assert not drained.positions
    with pytest.raises(ConsumerTimeout):
        next(feed.stream)
    assert drained.positions == [START + len(entry)]


# -- batches ----------------------------------------------------------------------------------------------------------


def rows(batch: object) -> list[bytes]:
    return batch.record_batch.column("value").to_pylist()  # type: ignore[attr-defined, no-any-return]


def test_batches_end_where_entries_end() -> None:
    feed = Feed()
    fed(feed)
    batches = feed.stream.batches(max_messages=4)
    got = [next(batches), next(batches)]
    assert [rows(batch) for batch in got] == [VALUES[:4], VALUES[4:]]
    assert [(batch.offset, batch.next_offset, batch.last_offset) for batch in got] == [
        (START, BEHIND_AT, ENTRY_AT), (BEHIND_AT, END, BEHIND_AT),
    ]  # fmt: skip


def test_an_entry_that_is_larger_than_a_batch_is_finished_by_the_next_ones() -> None:
    feed = Feed()
    queue = fed(feed)
    batches = feed.stream.batches(max_messages=2)
    assert rows(next(batches)) == VALUES[:1]
    first = next(batches)
    assert (rows(first), first.offset, first.next_offset, first.index) == (VALUES[1:3], ENTRY_AT, ENTRY_AT, 0)
    drained = Drained()
    queue.end(drained)
    rest = next(batches)
    assert (rows(rest), rest.offset, rest.next_offset, rest.index) == (VALUES[3:4], ENTRY_AT, BEHIND_AT, 2)
    with pytest.raises(ConsumerTimeout):
        next(batches)
    assert drained.positions == [BEHIND_AT]


def test_messages_and_batches_take_turns_within_an_entry() -> None:
    feed = Feed()
    fed(feed)
    take(feed.stream, 2)
    batches = feed.stream.batches(max_messages=1)
    assert rows(next(batches)) == [b"two"]
    assert next(feed.stream).value == b"three"
    assert rows(next(batches)) == [b"behind"]
