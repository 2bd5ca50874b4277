"""What `poll` returns: records, by partition and all together; and the values of offsets and groups."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.records import (
    NULL_SIZE,
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TimestampType,
)

A, B, OTHER = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("orders", 0)


def record(partition: TopicPartition, offset: int) -> ConsumerRecord[str, bytes]:
    return ConsumerRecord(*partition, offset, 1500000000000, TimestampType.CREATE_TIME, "k", b"value", (), 3, 1, 5)


RECORDS = {B: [record(B, 7), record(B, 8)], OTHER: [record(OTHER, 0)], A: [record(A, 1)]}
NEXT = {B: OffsetAndMetadata(9, "", 3), OTHER: OffsetAndMetadata(1), A: OffsetAndMetadata(2)}


def test_a_record_has_the_names_of_kafka() -> None:
    found = record(A, 1)
    assert (found.topic, found.partition, found.offset) == ("clicks", 0, 1)
    assert (found.timestamp, found.timestamp_type) == (1500000000000, TimestampType.CREATE_TIME)
    assert (found.key, found.value, found.headers, found.leader_epoch) == ("k", b"value", (), 3)
    assert (found.serialized_key_size, found.serialized_value_size) == (1, 5)
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_fast_way_makes_the_same_record() -> None:
    fields = ("clicks", 0, 1, 1500000000000, TimestampType.CREATE_TIME, "k", b"value", (), 3, 1, 5)
    made = tuple.__new__(ConsumerRecord, fields)
    assert made == record(A, 1)
    assert (type(made), made.serialized_value_size) == (ConsumerRecord, 5)


def test_what_an_old_format_does_not_have_is_left_out() -> None:
    found = ConsumerRecord("clicks", "1-0", 1, None, TimestampType.NO_TIMESTAMP_TYPE, None, None)
    assert (found.headers, found.leader_epoch) == ((), None)
    assert found.serialized_key_size == found.serialized_value_size == NULL_SIZE == -1


def test_records_are_iterated_one_partition_after_the_other_in_the_order_of_the_fetch() -> None:
    found = ConsumerRecords(RECORDS, NEXT)
    assert [(each.topic, each.partition, each.offset) for each in found] == [
        ("clicks", 1, 7), ("clicks", 1, 8), ("orders", 0, 0), ("clicks", 0, 1),
    ]  # fmt: skip
    assert list(found) == list(found)
    assert len(found) == found.count() == 4
    assert found
    assert not found.is_empty()
    assert found.partitions() == (B, OTHER, A)


def test_records_of_a_partition_and_of_a_topic() -> None:
    found = ConsumerRecords(RECORDS, NEXT)
    assert found.records(B) == RECORDS[B]
    assert found.records("clicks") == [*RECORDS[B], *RECORDS[A]]
    assert found.records(TopicPartition("gone", 0)) == found.records("gone") == []


def test_what_is_returned_is_a_copy() -> None:
    found = ConsumerRecords(RECORDS, NEXT)
    found.records(B).clear()
    found.next_offsets().clear()
    assert found.records(B) == RECORDS[B]
    assert found.next_offsets() == NEXT


def test_a_poll_without_records_is_false_and_may_have_moved_positions() -> None:
    found: ConsumerRecords[bytes, bytes] = ConsumerRecords({A: []}, {A: OffsetAndMetadata(9)})
    assert not found
    assert found.is_empty()
    assert (found.count(), list(found), found.partitions()) == (0, [], ())
    assert found.next_offsets() == {A: OffsetAndMetadata(9)}
    assert repr(found) == "ConsumerRecords(none)"


def test_the_repr_counts_records_and_shows_no_values() -> None:
    assert repr(ConsumerRecords(RECORDS)) == "ConsumerRecords(clicks/1: 2, orders/0: 1, clicks/0: 1)"


def test_a_negative_offset_is_not_committed() -> None:
    assert OffsetAndMetadata(0) == OffsetAndMetadata(0, "", None)
    with pytest.raises(ValueError, match="offset -1 is negative; it must be 0 or more"):
        OffsetAndMetadata(-1)


def test_values_are_hashed_and_not_changed() -> None:
    values = [OffsetAndMetadata(1), OffsetAndTimestamp(1, 2), ConsumerGroupMetadata("g")]
    assert len(set(values)) == 3
    for each in values:
        assert pickle.loads(pickle.dumps(each)) == each
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(each, dataclasses.fields(each)[0].name, 7)


def test_a_consumer_that_has_not_joined_has_no_generation() -> None:
    found = ConsumerGroupMetadata("g")
    assert (found.generation_id, found.member_id, found.group_instance_id) == (-1, "", None)
