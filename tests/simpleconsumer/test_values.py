"""The values and errors that callers hold: equality, pickling, texts."""

from __future__ import annotations

import copy
import pickle

import pytest

import simpleconsumer
from simpleconsumer.errors import (
    AuthenticationFailed,
    BrokerError,
    ConnectionFailed,
    CorruptMessage,
    CrcMismatch,
    DamagedOffset,
    MessageError,
    MessageTooLarge,
    SimpleConsumerError,
    UnknownCodec,
    broker_error,
)
from simpleconsumer.types import Message, TopicPartition
from zkconsumer_error import ZkConsumerError


def test_messages_are_equal_by_all_their_fields() -> None:
    message = Message("t", 1, 5, 6, b"k", b"v", 7)
    assert message == Message("t", 1, 5, 6, b"k", b"v", 7)
    fields = ["t", 1, 5, 6, b"k", b"v", 7]
    for index in range(len(fields)):
        other = [*fields[:index], "other", *fields[index + 1 :]]
        assert message != Message(*other)  # type: ignore[arg-type]
    assert message != ("t", 1, 5, 6, b"k", b"v", 7)


def test_messages_have_no_hash_because_decoders_change_them() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Message("t", 1, 5, 6, None, None))


def test_messages_have_slots_in_the_order_of_the_constructor() -> None:
    assert Message.__slots__ == ("topic", "partition", "offset", "next_offset", "key", "value", "timestamp_ms")
    message = Message("t", "0-1", 5, 6, None, b"v")
    assert not hasattr(message, "__dict__")
    assert repr(message) == ("Message('t', '0-1', offset=5, next_offset=6, key=None, value=b'v', timestamp_ms=None)")
    assert pickle.loads(pickle.dumps(message)) == message == copy.copy(message)


def test_topic_partitions_sort_and_are_equal_to_plain_tuples() -> None:
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 2)]) == [
        ("a", 2), ("a", 10), ("b", 0),
    ]  # fmt: skip
    assert {TopicPartition("a", 1): "x"}[("a", 1)] == "x"  # type: ignore[index]


@pytest.mark.parametrize("kind", [CrcMismatch, DamagedOffset, UnknownCodec, CorruptMessage, MessageTooLarge])
def test_message_errors_name_their_place_and_survive_pickling_without_resume(kind: type[MessageError]) -> None:
    error = kind("clicks", 3, 41, 42, "it is broken")
    error.resume = object()
    assert str(error) == "clicks/3 at 41: it is broken"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.next_offset, again.resume) == (kind, str(error), 42, None)


def test_broker_errors_name_code_and_place() -> None:
    error = BrokerError(1, "clicks", 0, 99)
    assert (error.name, error.retriable) == ("OffsetOutOfRange", False)
    assert str(error) == "clicks/0 at 99: OffsetOutOfRange (code 1): the offset is no longer in the log, or not yet"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(BrokerError(15, None, None)).startswith("ConsumerCoordinatorNotAvailable (code 15)")


@pytest.mark.parametrize(
    ("code", "name", "retriable"),
    [
        (-1, "Unknown", False),
        (0, "None", False),
        (3, "UnknownTopicOrPartition", True),
        (5, "LeaderNotAvailable", True),
        (6, "NotLeaderForPartition", True),
        (14, "OffsetsLoadInProgress", True),
        (16, "NotCoordinatorForConsumer", True),
        (35, "UnsupportedVersion", False),
        (38, "InvalidReplicationFactor", False),
        (56, "KafkaStorageError", True),
        (74, "FencedLeaderEpoch", True),
        (87, "InvalidRecord", False),
        (106, "FetchSessionTopicIdError", True),
        (999, "Code999", False),
    ],
)
def test_the_error_table(code: int, name: str, retriable: bool) -> None:
    assert broker_error(code)[:3] == (code, name, retriable)
    assert broker_error(code).meaning


def test_the_error_table_has_no_holes() -> None:
    assert [broker_error(code).code for code in range(-1, 36)] == list(range(-1, 36))
    assert not [code for code in range(-1, 36) if broker_error(code).name.startswith("Code")]


def test_every_error_of_the_package_has_one_root() -> None:
    errors = [getattr(simpleconsumer, name) for name in simpleconsumer.__all__]
    errors = [value for value in errors if isinstance(value, type) and issubclass(value, Exception)]
    assert len(errors) == 16
    assert all(issubclass(error, ZkConsumerError) for error in errors)
    # What tries again after a SimpleConsumerError must not try again with credentials that were refused.
    assert [error for error in errors if not issubclass(error, SimpleConsumerError)] == [AuthenticationFailed]
    assert str(ConnectionFailed("h", 9092, "refused")) == "h:9092: refused"
