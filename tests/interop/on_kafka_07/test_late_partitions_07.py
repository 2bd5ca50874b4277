"""Partitions of Kafka 0.7 that appear after a member with `auto.offset.reset=largest`: what it wants, and nothing old.

Java 0.7.2 starts such a partition at the end that it finds at the claim, and passes over what was produced before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from consuming_07 import fill, member, offset_of, take
from kafka_07 import BOTH_07, Both, cluster_07, log_files, produce_07

from zkconsumer import KafkaStream, Message
from zkconsumer.errors import ConsumerTimeout
from zkconsumer.member.delivery import SLOW_CLOCK_MS
from zkconsumer.testing.kafka.topics_07 import create, partitions_of
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

SEGMENT_BYTES = 200
HOUR_S = 3600


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[Both]:
    with cluster_07(request.param, settings={"log.file.size": SEGMENT_BYTES}) as cluster:
        yield cluster


def stop_with_old_log(cluster: Both, topic: str, age_s: float) -> None:
    """Stop broker 1; its log was last written so long ago."""
    cluster.stop(1)
    for file in log_files(cluster, 1, f"{topic}-0"):
        os.utime(file, (time.time() - age_s,) * 2)


def come_back(cluster: Both, topic: str, values: list[bytes]) -> None:
    """Start broker 1; somebody produces before any consumer can have noticed it."""
    cluster.start(1)
    produce_07(cluster.port(1), topic, 0, values)


def read_to(stream: KafkaStream, value: bytes) -> list[Message]:
    """What comes up to a message with that value."""
    got = take(stream, 1)
    while got[-1].value != value:
        got += take(stream, 1)
    return got


def test_of_a_broker_that_comes_back_old_messages_are_left_and_new_ones_read(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    produce_07(cluster.port(1), topic, 0, [b"old %d" % number for number in range(40)])
    end = produce_07(cluster.port(1), topic, 0, [])
    stop_with_old_log(cluster, topic, HOUR_S)
    with member(cluster, fresh_group, {topic: 1}, auto_offset_reset="largest") as (stream,):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        cluster.start(1)
        wait_until(lambda: offset_of(cluster, fresh_group, topic, "1-0") == end, 20, "the start to be stored")
        produce_07(cluster.port(1), topic, 0, [b"new"])
        assert [message.value for message in take(stream, 1)] == [b"new"]


def test_what_is_produced_before_the_claim_is_read_with_the_rest_of_its_segment_alone(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    """0.7 has no time of a message: the log is known by when its segments were last written."""
    for number in range(40):
        produce_07(cluster.port(1), topic, 0, [b"old %02d" % number])
    segments = log_files(cluster, 1, f"{topic}-0")
    assert len(segments) > 2
    stop_with_old_log(cluster, topic, HOUR_S)
    with member(cluster, fresh_group, {topic: 1}, auto_offset_reset="largest") as (stream,):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        come_back(cluster, topic, [b"new"])
        got = read_to(stream, b"new")
    assert got[0].offset >= int(segments[-1].stem), "only the last segment was written"
    assert len(got) <= SEGMENT_BYTES // len(b"old 00") + 2


def test_a_clock_that_is_slow_loses_nothing(cluster: Both, topic: str, fresh_group: str) -> None:
    """What was written shortly before the start of the member, by two clocks, may have been written after it."""
    produce_07(cluster.port(1), topic, 0, [b"perhaps new"])
    stop_with_old_log(cluster, topic, SLOW_CLOCK_MS / 1000 - 20)
    with member(cluster, fresh_group, {topic: 1}, auto_offset_reset="largest") as (stream,):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        cluster.start(1)
        assert [message.value for message in take(stream, 1)] == [b"perhaps new"]


def test_a_partition_that_goes_before_anything_of_it_is_stored_is_read_on_when_it_is_back(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    """Without auto-commit nobody has stored where it started."""
    settings = {"auto_offset_reset": "largest", "auto_commit_enable": False}
    with member(cluster, fresh_group, {topic: 1}, **settings) as (stream,):
        fill(cluster, topic, 1, partitions=["1-0"])
        assert [message.value for message in take(stream, 1)] == [b"1-0:0"]
        cluster.stop(1)
        wait_until(lambda: partitions_of(cluster.client, topic) == ["0-0", "0-1"], 20, "the broker to be gone")
        come_back(cluster, topic, [b"1-0:1"])
        # What was read before may be delivered again: its offset was not committed.
        assert read_to(stream, b"1-0:1")[0].value in (b"1-0:0", b"1-0:1")


@pytest.mark.catalogue("H1")
def test_a_topic_that_a_broker_gets_later_is_read_from_its_start(
    cluster: Both, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """On another broker the topic was there when the member started."""
    topic = fresh_topic()
    create(cluster.port(0), topic)
    wait_until(lambda: partitions_of(cluster.client, topic) == ["0-0", "0-1"], 20, "broker 0 to register the topic")
    with member(cluster, fresh_group, {topic: 1}, auto_offset_reset="largest") as (stream,):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        produce_07(cluster.port(1), topic, 1, [b"first", b"second"])
        assert [message.value for message in take(stream, 2)] == [b"first", b"second"]


def test_a_topic_that_is_new_is_read_from_its_start(
    cluster: Both, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    with member(cluster, fresh_group, {topic: 1}, auto_offset_reset="largest") as (stream,):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        produce_07(cluster.port(0), topic, 0, [b"first"])
        assert [message.value for message in take(stream, 1)] == [b"first"]
