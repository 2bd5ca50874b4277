"""A listener that returns start offsets: they are used, stored, or refused with an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    member,
    offsets_of,
    preset_offset,
    read,
    stored,
    wait_owned,
    wait_stored,
)

from zkconsumer import ConsumerTimeout, KafkaStream, PartitionStopped, TopicPartition
from zkconsumer.testing import EmbeddedCluster, Fault, load
from zkconsumer.testing.waiting import wait_until

COUNT = 20
NEVER_MS = 3_600_000


class Chooses:
    """A listener that answers with offsets of its own."""

    def __init__(self, answer: Callable[[dict[TopicPartition, int]], Any]) -> None:
        self._answer = answer
        self.told: list[dict[TopicPartition, int]] = []

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> Any:
        self.told.append(positions)
        return self._answer(positions)


def at(offsets: Mapping[TopicPartition, int]) -> Chooses:
    return Chooses(lambda positions: {each: offset for each, offset in offsets.items() if each in positions})


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with twenty messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2)
    load(embedded_cluster, name, COUNT)
    return name


def refusal(stream: KafkaStream) -> PartitionStopped:
    """The error about a partition, whatever else comes first."""
    for _ in range(100):
        try:
            next(stream)
        except ConsumerTimeout:
            continue
        except PartitionStopped as error:
            return error
    raise AssertionError("nothing was said")


def test_reading_begins_where_the_listener_says_and_elsewhere_at_the_stored_offset(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"10")
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"12")
    listener = at({TopicPartition(topic, 0): 4})
    with member(embedded_cluster, fresh_group, listener=listener) as consumer:
        received = read(consumer.create_message_streams({topic: 1})[topic], 16 + 8)
    assert {each: offset for call in listener.told for each, offset in call.items()} == {(topic, 0): 10, (topic, 1): 12}
    assert offsets_of(received, 0) == list(range(4, COUNT))
    assert offsets_of(received, 1) == list(range(12, COUNT))


def test_with_auto_commit_a_chosen_start_is_stored_before_anything_is_read_so_that_a_successor_skips_nothing(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"10")
    listener = at({TopicPartition(topic, 0): 4})
    with member(embedded_cluster, fresh_group, listener=listener, auto_commit_interval_ms=NEVER_MS) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert stored(embedded_cluster, fresh_group, topic, 0) == b"4"
        read(stream, 2 * COUNT - 4)
    assert stored(embedded_cluster, fresh_group, topic, 0) == b"20"


def test_auto_commit_goes_on_below_what_was_stored(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"10")
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"20")
    with member(embedded_cluster, fresh_group, listener=at({TopicPartition(topic, 0): 4}),
                auto_commit_interval_ms=20) as consumer:  # fmt: skip
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        read(stream, 3)
        wait_stored(embedded_cluster, fresh_group, topic, 0, 6)


def test_without_auto_commit_nothing_is_stored_before_the_application_commits_and_then_it_may_lower(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"10")
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"20")
    with member(embedded_cluster, fresh_group, listener=at({TopicPartition(topic, 0): 4}),
                auto_commit_enable=False) as consumer:  # fmt: skip
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        read(stream, 2)
        assert stored(embedded_cluster, fresh_group, topic, 0) == b"10"
        consumer.commit_offsets()
        assert stored(embedded_cluster, fresh_group, topic, 0) == b"6"


def test_what_somebody_else_stores_after_the_choice_is_not_lowered(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"10")
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"20")
    with member(embedded_cluster, fresh_group, listener=at({TopicPartition(topic, 0): 4}),
                auto_commit_enable=False) as consumer:  # fmt: skip
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        preset_offset(embedded_cluster, fresh_group, topic, 0, b"15")
        read(stream, 2)
        consumer.commit_offsets()
        assert stored(embedded_cluster, fresh_group, topic, 0) == b"15"


def test_each_ownership_asks_anew(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> None:
    listener = at({TopicPartition(topic, 1): 5})
    with member(embedded_cluster, fresh_group, "a", auto_commit_enable=False, listener=listener) as a:
        a.create_message_streams({topic: 1})
        with member(embedded_cluster, fresh_group, "b", auto_commit_enable=False) as b:
            b.create_message_streams({topic: 1})
            wait_owned(a, [(topic, 0)])
        wait_owned(a, [(topic, 0), (topic, 1)])
        wait_until(lambda: listener.told[-1] == {(topic, 1): 0}, PATIENCE_S, "partition 1 to be assigned again")
        assert offsets_of(read(a._streams, 2 * COUNT - 5), 1) == list(range(5, COUNT))


@pytest.mark.parametrize("offset", [-1, 21, "7", 2**63])
def test_an_offset_that_the_log_does_not_have_or_that_is_none_stops_its_partition_with_a_sentence(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, offset: object
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"10")
    listener = at({TopicPartition(topic, 0): offset})  # type: ignore[dict-item]
    with member(embedded_cluster, fresh_group, listener=listener) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        reader = BackgroundReader(stream)
        wait_until(lambda: len(reader.messages) == COUNT and reader.errors, PATIENCE_S, "partition 1, and an error")
        [error] = reader.errors
        assert isinstance(error, PartitionStopped)
        assert (error.topic, error.partition) == (topic, 0)
        assert f"returned offset {offset!r}" in str(error)
        assert ("the log has 0 to 20" in str(error)) is (offset == 21)
        assert offsets_of(reader.messages, 1) == list(range(COUNT))
        [of_it] = [each for each in consumer.status().owned if each.partition == 0]
        assert "returned offset" in str(of_it.error)
    assert stored(embedded_cluster, fresh_group, topic, 0) == b"10"
    assert stored(embedded_cluster, fresh_group, topic, 1) == b"20"


def test_an_offset_that_retention_has_taken_is_refused_and_not_reset(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    leader = embedded_cluster.leader(topic, 0)
    assert leader is not None
    log = embedded_cluster.brokers[leader].log(topic, 0)
    log.roll()
    load(embedded_cluster, topic, 1)
    log.delete_head(COUNT)
    with member(embedded_cluster, fresh_group, listener=at({TopicPartition(topic, 0): 19})) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert "returned offset 19, and the log has 20 to 21" in str(refusal(stream))


def test_an_unknown_partition_stops_all_of_the_call(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    listener = Chooses(lambda _: {TopicPartition("elsewhere", 0): 3})
    with member(embedded_cluster, fresh_group, listener=listener) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        errors = [refusal(stream), refusal(stream)]
        assert sorted(error.partition for error in errors) == [0, 1]
        assert all("elsewhere-0" in str(error) for error in errors)


def test_a_leader_that_does_not_answer_is_asked_again(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"0")
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"20")
    closed = embedded_cluster.faults.add(Fault.close(api="offsets", topic=topic), times=2)
    with member(embedded_cluster, fresh_group, listener=at({TopicPartition(topic, 0): 18})) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert offsets_of(read(stream, 2), 0) == [18, 19]
    assert embedded_cluster.faults.used(closed) == 2


def test_the_answer_of_a_listener_that_fails_is_none(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"19")
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"20")

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with member(embedded_cluster, fresh_group, listener=Chooses(fail)) as consumer:
        assert offsets_of(read(consumer.create_message_streams({topic: 1})[topic], 1), 0) == [19]
    assert "on_partitions_assigned of the rebalance listener failed" in caplog.text
