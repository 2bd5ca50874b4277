"""What applications pass to KafkaConsumer: the forms that are taken, and what is refused with the value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer import KafkaConsumer, KafkaConsumerConfig, ListenerRefused, NotSubscribed
from zkconsumer.polling.arguments import (
    checked_offsets,
    one_partition,
    pattern_of,
    seconds_of,
    several_partitions,
    topics_of,
)
from zkconsumer.polling.records import OffsetAndMetadata

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
NOBODY = "127.0.0.1:1"


def test_partitions_may_be_given_one_by_one_in_a_list_and_as_pairs() -> None:
    assert several_partitions("pause", ZERO, ONE) == several_partitions("pause", [ZERO, ("t", 1)]) == [ZERO, ONE]
    assert several_partitions("assign", [ZERO, ZERO]) == [ZERO]
    assert several_partitions("assign", TopicPartition("t", "0-3")) == [TopicPartition("t", "0-3")]


@pytest.mark.parametrize(("call", "words"), [
    (lambda: one_partition("seek", "t"), "seek: 't' is not a partition"),
    (lambda: one_partition("seek", ("t", "0")), r"seek: \('t', '0'\) is not a partition"),
    (lambda: one_partition("seek", ("t", -1)), "number of partition t--1 is negative"),
    (lambda: one_partition("assign", ("t", 2**31)), "partition t-2147483648 cannot exist; .* 0 to 2147483647"),
    (lambda: several_partitions("assign", None), "assign: None is neither a partition nor a collection of partitions"),
    (lambda: several_partitions("assign", ["t"]), "assign: 't' is not a partition"),
    (lambda: seconds_of("poll", None), "poll: timeout_ms is None; it must be a number of milliseconds"),
    (lambda: seconds_of("poll", -1), "poll: timeout_ms is -1; it must be 0 or more"),
    (lambda: seconds_of("poll", float("nan")), "poll: timeout_ms is nan"),
    (lambda: checked_offsets("commit", [ZERO]), "commit: offsets is .*; it must map partitions to offsets"),
    (lambda: checked_offsets("commit", {ZERO: "5"}), "commit: '5' of t-0 is not a whole number"),
    (lambda: checked_offsets("commit", {ZERO: -5}), "commit: -5 of t-0 is negative"),
    (lambda: checked_offsets("commit", {ZERO: 2**63}), "commit: 9223372036854775808 of t-0 is larger than the largest"),
    (lambda: checked_offsets("commit", {ZERO: OffsetAndMetadata(2**63)}), "of t-0 is larger than the largest"),
    (lambda: checked_offsets("commit", {ZERO: OffsetAndMetadata(5, "é" * 16_384)}), "of t-0 has 32768 bytes"),
    (lambda: checked_offsets("commit", {ZERO: OffsetAndMetadata(5, b"note")}),  # type: ignore[arg-type]
     "the metadata of t-0 is b'note'; it must be text"),
    (lambda: checked_offsets("commit", {ZERO: OffsetAndMetadata(5, "\ud800")}),
     "the metadata of t-0 cannot be encoded as UTF-8"),
    (lambda: checked_offsets("commit", {ZERO: OffsetAndMetadata(5, "", 2**31)}), "leader epoch of t-0 is 2147483648"),
    (lambda: checked_offsets("commit", {ZERO: OffsetAndMetadata(5, "", "1")}),  # type: ignore[arg-type]
     "the leader epoch of t-0 is '1'; it must be a whole number"),
    (lambda: topics_of("subscribe", None), "subscribe: topics is None; it must be a list of names"),
    (lambda: topics_of("subscribe", "clicks"), "subscribe: topics is 'clicks'; it must be a list of names"),
    (lambda: topics_of("subscribe", [b"clicks"]), "subscribe: b'clicks' is not the name of a topic"),
    (lambda: pattern_of("subscribe", "(("), r"subscribe: pattern '\(\(' is not a regular expression of Python"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_the_call_and_the_value(call: Callable[[], Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_offsets_to_commit_may_have_texts() -> None:
    with_text = OffsetAndMetadata(5, "note")
    assert checked_offsets("commit", {ZERO: 4, ONE: with_text}) == {ZERO: OffsetAndMetadata(4), ONE: with_text}


class Misspelled:
    def on_partition_assigned(self, partitions: object) -> None: ...


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda it: it.subscribe(["t"], listener=object()), ListenerRefused, "none of the methods that are called"),
    (lambda it: it.subscribe(["t"], listener=Misspelled()), ListenerRefused, "did you mean 'on_partitions_assigned'"),
    (lambda it: it.poll("100"), TypeError, "poll: timeout_ms is '100'"),
    (lambda it: it.commit_async(callback=5), TypeError, "callback is 5"),
    (lambda it: it.offsets_for_times({ZERO: datetime(2026, 1, 1, tzinfo=UTC)}), TypeError, "is not a whole number"),
    (lambda it: it.assign([("t", 2**31)]), ValueError, "partition t-2147483648 cannot exist"),
    (lambda it: it.seek(ZERO, OffsetAndMetadata(2**63)), ValueError, "seek: .* is larger than the largest"),
    (lambda it: it.close(-1), ValueError, "close: timeout_ms is -1"),
])  # fmt: skip
def test_a_consumer_refuses_them_before_anything_is_asked(
    call: Callable[[KafkaConsumer], Any], error: type[Exception], words: str
) -> None:
    with KafkaConsumer(bootstrap_servers=NOBODY, group_id="g") as consumer, pytest.raises(error, match=words):
        call(consumer)


def test_a_configuration_or_an_address_in_the_place_of_a_topic_is_refused() -> None:
    config = KafkaConsumerConfig(bootstrap_servers=NOBODY)
    with pytest.raises(TypeError, match="is not the name of a topic"):
        KafkaConsumer(config)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="it must be a KafkaConsumerConfig"):
        KafkaConsumer(config={"bootstrap.servers": NOBODY})  # type: ignore[arg-type]


def test_without_a_group_the_remedy_is_a_group() -> None:
    with pytest.raises(NotSubscribed, match="set group_id, or assign partitions"):
        KafkaConsumer("clicks", bootstrap_servers=NOBODY)
