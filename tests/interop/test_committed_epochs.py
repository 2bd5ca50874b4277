"""Leader epochs that are stored with offsets: a log that was cut off is noticed by who goes on from them.

A broker that starts again leads in a new epoch. So a log has ten records of one epoch, and ten of a later one. A record
at offset 10 or more that was read in the first epoch is not in that log any more, as after an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from broker_groups import SHORT_SESSIONS, Running, wait_read
from polling import PATIENCE_S, consumer_of, offsets, poll_until

from simpleconsumer.types import TopicPartition
from zkconsumer import LogTruncated, OffsetAndMetadata
from zkconsumer.testing import load
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
COUNT = 10


class Place(NamedTuple):
    """A partition with records of two epochs."""

    cluster: KafkaCluster
    name: TopicPartition
    epochs: tuple[int, int]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with KafkaCluster("4.3.1", settings=SHORT_SESSIONS) as cluster:
        name = TopicPartition("twice", 0)
        cluster.create_topic(name.topic, 1)
        load(cluster, name.topic, COUNT)
        cluster.kill(0)
        cluster.start(0)
        load(cluster, name.topic, COUNT)
        with consumer_of(cluster, None) as consumer:
            consumer.assign([name])
            records = poll_until(consumer, 2 * COUNT)
        first, second = records[0].leader_epoch, records[-1].leader_epoch
        assert first is not None
        assert second is not None
        assert first < second
        yield Place(cluster, name, (first, second))


def committed(place: Place, group: str) -> OffsetAndMetadata | None:
    with consumer_of(place.cluster, group) as other:
        return other.committed([place.name])[place.name]


def test_a_commit_carries_the_epoch_of_the_record_before_it(place: Place, fresh_group: str) -> None:
    name, (first, second) = place.name, place.epochs
    with consumer_of(place.cluster, fresh_group, name.topic, max_poll_records=5, enable_auto_commit=False) as consumer:
        poll_until(consumer, 5)
        consumer.commit_sync()
        assert committed(place, fresh_group) == OffsetAndMetadata(5, "", first)
        poll_until(consumer, 10)
        done: list[object] = []
        consumer.commit_async(callback=lambda stored, error: done.append(error))
        wait_until(lambda: consumer.poll(50) is not None and bool(done), PATIENCE_S, "the callback", interval_s=0.0)
        assert committed(place, fresh_group) == OffsetAndMetadata(15, "", second)
        consumer.commit_sync({name: OffsetAndMetadata(3, "checkpoint", first)})
        assert committed(place, fresh_group) == OffsetAndMetadata(3, "checkpoint", first)


def test_so_do_auto_commits_and_the_last_commit(place: Place, fresh_group: str) -> None:
    name, (_, second) = place.name, place.epochs
    with consumer_of(place.cluster, fresh_group, name.topic, auto_commit_interval_ms=50) as consumer:
        poll_until(consumer, 2 * COUNT)
        wait_until(lambda: consumer.poll(50) is not None and committed(place, fresh_group) is not None, PATIENCE_S,
                   "an auto-commit", interval_s=0.0)  # fmt: skip
        assert committed(place, fresh_group) == OffsetAndMetadata(2 * COUNT, "", second)
    assert committed(place, fresh_group) == OffsetAndMetadata(2 * COUNT, "", second)


@pytest.mark.catalogue("F10")
def test_a_member_goes_on_where_the_log_was_cut_off_before_it_started(
    place: Place, fresh_group: str, fresh_topic: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    commit_of_old_log(place, fresh_group)
    with consumer_of(place.cluster, fresh_group, place.name.topic, enable_auto_commit=False) as consumer:
        assert offsets(poll_until(consumer, COUNT)) == list(range(COUNT, 2 * COUNT))
    with Running(place.cluster, fresh_group, place.name.topic) as member:
        wait_read([member], COUNT)
        assert [each.offset for each in member.reader.messages] == list(range(COUNT, 2 * COUNT))
    assert f"its log was truncated at offset {COUNT} when its leader changed" in caplog.text


def test_without_a_policy_it_says_so(place: Place, fresh_group: str) -> None:
    commit_of_old_log(place, fresh_group)
    with consumer_of(place.cluster, fresh_group, place.name.topic, auto_offset_reset="none") as consumer:
        with pytest.raises(LogTruncated, match=f"truncated below position 15.*up to {COUNT}") as raised:
            poll_until(consumer, 1)
        assert raised.value.divergent_offset == COUNT
        consumer.seek(place.name, COUNT)
        assert offsets(poll_until(consumer, COUNT)) == list(range(COUNT, 2 * COUNT))


def test_an_offset_of_the_present_log_is_gone_on_from(place: Place, fresh_group: str) -> None:
    with consumer_of(place.cluster, fresh_group) as other:
        other.assign([place.name])
        other.commit_sync({place.name: OffsetAndMetadata(15, "", place.epochs[1])})
    with consumer_of(place.cluster, fresh_group, place.name.topic) as consumer:
        assert offsets(poll_until(consumer, 5)) == list(range(15, 20))


def commit_of_old_log(place: Place, group: str) -> None:
    """Commit what a member has read of a log that had five more records of the first epoch."""
    with consumer_of(place.cluster, group, enable_auto_commit=False) as other:
        other.assign([place.name])
        other.commit_sync({place.name: OffsetAndMetadata(15, "", place.epochs[0])})
