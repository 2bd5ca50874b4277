"""KafkaConsumer on real brokers: records, positions, commits, and what was not done comes again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from polling import (
    PATIENCE_S,
    VERSIONS,
    Seen,
    consumer_of,
    offsets,
    poll_until,
    settings_of,
    stored,
    threads_of,
)

from simpleconsumer.types import TopicPartition
from zkconsumer import (
    CommitFailed,
    ConsumerRecords,
    DecoderFailed,
    KafkaConsumer,
    OffsetAndMetadata,
)
from zkconsumer.polling.errors import (
    ConcurrentConsumerUse,
    ConsumerClosed,
    ConsumerWokenUp,
    NoOffsetForPartition,
    NotAssigned,
    NotSubscribed,
    OffsetOutOfRange,
    PollTimeout,
)
from zkconsumer.polling.records import TimestampType
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import Deadline, wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """One partition with ten records, `0:0` to `0:9`."""
    name = fresh_topic()
    cluster.create_topic(name, 1)
    load(cluster, name, 10)
    return name


# -- poll and positions ------------------------------------------------------------------------------------------------


def test_poll_returns_at_most_max_poll_records_and_the_position_is_behind_them(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=4) as consumer:
        first = wait_until(lambda: consumer.poll(200), PATIENCE_S, "records")
        assert offsets(list(first)) == [0, 1, 2, 3]
        assert consumer.position(at) == 4
        assert first.next_offsets() == {at: OffsetAndMetadata(4)}
        assert offsets(poll_until(consumer, 6)) == [4, 5, 6, 7, 8, 9]
        assert consumer.position(at) == 10
        assert not consumer.poll(0)
        assert consumer.assignment() == {at}
        assert consumer.subscription() == {topic}


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("setter", ["CreateTime", "LogAppendTime"])
def test_records_say_who_has_set_their_time_and_in_which_epoch_they_were_appended(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], setter: str, codec: str
) -> None:
    since = version_tuple(cluster.version)
    name = fresh_topic()
    config = {"message.timestamp.type": setter} if since >= (0, 10) else {}
    cluster.create_topic(name, 1, config=config)
    load(cluster, name, 5, codec=codec)
    with consumer_of(cluster, None, key_deserializer=bytes) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        records = poll_until(consumer, 5)
    expected = TimestampType.NO_TIMESTAMP_TYPE
    if since >= (0, 10):
        expected = TimestampType.LOG_APPEND_TIME if setter == "LogAppendTime" else TimestampType.CREATE_TIME
    for record in records:
        if record.timestamp is None:  # the load has sent none
            assert expected is not TimestampType.LOG_APPEND_TIME
        else:
            assert record.timestamp_type is expected
        assert record.leader_epoch == (0 if since >= (0, 11) else None)


def test_a_poll_without_time_makes_progress_over_repeated_calls(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    """Also the callbacks run in it."""
    found: list[int] = []
    seen = Seen()
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe([topic], listener=seen)
        wait_until(lambda: found.extend(offsets(list(consumer.poll(0)))) or len(found) == 10, PATIENCE_S, "records")
        assert seen.of("assigned") == [{TopicPartition(topic, 0)}]
    assert found == list(range(10))


def test_what_the_last_poll_returned_is_not_committed_by_a_timer_and_is_by_the_next_poll(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=4, auto_commit_interval_ms=50) as consumer:
        poll_until(consumer, 4)
        poll_until(consumer, 4)
        wait_until(lambda: stored(cluster, fresh_group, at)[at] == 4, PATIENCE_S, "the commit of the first four")
        assert stored(cluster, fresh_group, at)[at] == 4
    assert stored(cluster, fresh_group, at)[at] == 8  # closed in order


@pytest.mark.parametrize("store", ["default", "kafka", "both"])
def test_commits_take_effect_in_the_order_of_the_calls_wherever_offsets_are_stored(
    cluster: KafkaCluster, topic: str, fresh_group: str, store: str
) -> None:
    """Many that nobody waits for, and one that is waited for; then the auto-commit of the end."""
    of_zookeeper = cluster.version == "0.8.2.2"
    if store != "default" and not of_zookeeper:
        pytest.skip("brokers store the offsets of this group")
    at = TopicPartition(topic, 0)
    seen: list[tuple[int, Exception | None]] = []
    intercepted: list[int] = []

    class Interceptor:
        def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
            return records

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            intercepted.append(offsets[at].offset)

    more: dict[str, Any] = {"interceptor_classes": [Interceptor()], "auto_commit_interval_ms": 1_000_000}
    if store != "default":
        more |= {"offsets_storage": "kafka", "dual_commit_enabled": store == "both"}
    with consumer_of(cluster, fresh_group, topic, **more) as consumer:
        poll_until(consumer, 10)
        for offset in (9, 0, 7, 1, 8):
            consumer.commit_async({at: offset}, lambda offsets, error: seen.append((offsets[at].offset, error)))
        consumer.commit_sync({at: 5})
        assert seen == [(9, None), (0, None), (7, None), (1, None), (8, None)]
        found = consumer.committed([at])[at]
        assert found is not None
        assert found.offset == 5
        consumer.commit_async({at: 3})
    assert intercepted == [0, 9, 0, 7, 1, 8, 5, 3, 10], "from where it has started to its end"
    if store != "kafka":
        assert stored(cluster, fresh_group, at) == {at: 10}


def test_a_killed_process_gets_again_what_its_last_poll_returned(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    program = textwrap.dedent("""
        import json, os, signal, sys, time
        from zkconsumer import KafkaConsumer
        topic, settings = sys.argv[1], json.loads(sys.argv[2])
        consumer = KafkaConsumer(topic, max_poll_records=3, auto_commit_interval_ms=20, **settings)
        while not (records := consumer.poll(500)):
            pass
        while not (records := consumer.poll(500)):
            pass
        until = time.monotonic() + 30
        while time.monotonic() < until:
            at = consumer.committed([(topic, 0)])[(topic, 0)]
            if at is not None and at.offset == 3:
                break
            time.sleep(0.02)
        print(*[record.offset for record in records], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    settings = settings_of(cluster, fresh_group)
    if cluster.version != "0.8.2.2":
        settings |= {"session_timeout_ms": 6000, "request_timeout_ms": 6000}
    else:
        settings["zookeeper_session_timeout_ms"] = 4000
    done = subprocess.run(
        [sys.executable, "-c", program, topic, json.dumps(settings)], capture_output=True, text=True, timeout=90,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["3", "4", "5"]), done.stderr
    with consumer_of(cluster, fresh_group, topic) as consumer:
        assert offsets(poll_until(consumer, 7)) == [3, 4, 5, 6, 7, 8, 9]


def test_records_of_a_block_that_fails_come_again(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    def work() -> None:
        with consumer_of(cluster, fresh_group, topic, max_poll_records=3) as consumer:
            assert offsets(poll_until(consumer, 3)) == [0, 1, 2]
            assert offsets(poll_until(consumer, 3)) == [3, 4, 5]
            raise RuntimeError("of the application")

    with pytest.raises(RuntimeError, match="of the application"):
        work()
    assert not threads_of()
    with consumer_of(cluster, fresh_group, topic) as consumer:
        assert offsets(poll_until(consumer, 7)) == [3, 4, 5, 6, 7, 8, 9]


def test_a_consumer_is_an_iterator_and_what_it_has_not_given_is_not_committed(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic) as consumer:
        found = []
        for record in consumer:
            found.append(record.offset)
            if record.offset == 3:
                break
        assert found == [0, 1, 2, 3]
        assert consumer.position(at) == 4
        consumer.commit_sync()
        assert stored(cluster, fresh_group, at)[at] == 4
        assert next(consumer).offset == 4
        assert offsets(poll_until(consumer, 2)) == [5, 6, 7, 8, 9]
        consumer.seek(at, 2)
        assert [next(consumer).offset for _ in range(3)] == [2, 3, 4]
    assert stored(cluster, fresh_group, at)[at] == 5
    assert list(consumer) == []


# -- commits -----------------------------------------------------------------------------------------------------------


def test_commit_sync_stores_positions_offsets_and_texts(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, enable_auto_commit=False, max_poll_records=4) as consumer:
        poll_until(consumer, 4)
        assert consumer.committed([at]) == {at: None}
        consumer.commit_sync()
        assert stored(cluster, fresh_group, at) == {at: 4}
        consumer.commit_sync({at: 7})
        assert stored(cluster, fresh_group, at) == {at: 7}
        consumer.commit_sync({at: OffsetAndMetadata(2, "from node 7")})
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 2
        if cluster.version != "0.8.2.2":  # ZooKeeper has no place for it
            assert committed.metadata == "from node 7"
        assert consumer.position(at) == 4  # commits do not move it
    assert stored(cluster, fresh_group, at) == {at: 2}  # without auto-commit nothing more is stored


def test_a_commit_of_what_is_not_assigned_names_it(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    other = TopicPartition("never-heard-of", 3)
    with consumer_of(cluster, fresh_group, topic) as consumer:
        poll_until(consumer, 10)
        with pytest.raises(CommitFailed, match="never-heard-of"):
            consumer.commit_sync({other: 1})


@pytest.mark.parametrize("text", ["x" * 40_000, "\ud800"])
def test_a_text_that_no_request_can_have_is_refused_and_the_consumer_goes_on(
    cluster: KafkaCluster, topic: str, fresh_group: str, text: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=4, enable_auto_commit=False) as consumer:
        assert offsets(poll_until(consumer, 4)) == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="commit: the metadata of"):
            consumer.commit_sync({at: OffsetAndMetadata(4, text)})
        consumer.commit_sync({at: 4})
        assert offsets(poll_until(consumer, 6)) == [4, 5, 6, 7, 8, 9]
    assert stored(cluster, fresh_group, at) == {at: 4}


def test_an_asynchronous_commit_calls_back_inside_of_a_later_poll(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    calls: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], Exception | None, threading.Thread]] = []

    def done(what: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        calls.append((what, error, threading.current_thread()))

    with consumer_of(cluster, fresh_group, topic, enable_auto_commit=False) as consumer:
        poll_until(consumer, 10)
        consumer.commit_async(callback=done)
        consumer.commit_async({at: OffsetAndMetadata(3, "m")}, done)
        consumer.commit_async({TopicPartition("never-heard-of", 3): 1}, done)
        assert calls == []
        wait_until(lambda: [consumer.poll(20), len(calls) == 3][1], PATIENCE_S, "the callbacks", state=lambda: calls)
        assert [what for what, _, _ in calls[:2]] == [{at: OffsetAndMetadata(10)}, {at: OffsetAndMetadata(3, "m")}]
        assert [type(error) for _, error, _ in calls] == [type(None), type(None), CommitFailed]
        assert {thread for _, _, thread in calls} == {threading.current_thread()}
        assert stored(cluster, fresh_group, at) == {at: 3}
        consumer.commit_async({at: 6}, done)
    assert [error for _, error, _ in calls[3:]] == [None]  # close waits for it
    assert stored(cluster, fresh_group, at) == {at: 6}


# -- seek, pause -------------------------------------------------------------------------------------------------------


def test_seek_moves_the_position_and_a_commit_behind_a_seek_backwards_is_lower(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=2) as consumer:
        poll_until(consumer, 10)
        consumer.commit_sync()
        consumer.seek(at, 3)
        assert consumer.position(at) == 3
        assert offsets(poll_until(consumer, 2)) == [3, 4]
        consumer.commit_sync()
        assert stored(cluster, fresh_group, at) == {at: 5}
        consumer.seek_to_beginning()
        assert consumer.position(at) == 0
        assert offsets(poll_until(consumer, 2)) == [0, 1]
        consumer.seek_to_end(at)
        assert not consumer.poll(300)
        assert consumer.position(at) == 10
        consumer.seek(at, OffsetAndMetadata(8, "ignored"))
        assert offsets(poll_until(consumer, 2)) == [8, 9]
        consumer.seek(at, 1)
    assert stored(cluster, fresh_group, at) == {at: 1}
    with consumer_of(cluster, fresh_group, topic) as consumer:
        assert offsets(poll_until(consumer, 9))[0] == 1


def test_seek_of_partitions_that_are_not_assigned_is_refused(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic) as consumer:
        for call in (lambda: consumer.seek(at, 0), lambda: consumer.seek_to_end(at), lambda: consumer.position(at),
                     lambda: consumer.pause(at), lambda: consumer.resume(at)):  # fmt: skip
            with pytest.raises(NotAssigned):
                call()
        poll_until(consumer, 10)
        with pytest.raises(ValueError, match="negative"):
            consumer.seek(at, -1)


def test_a_paused_partition_returns_nothing_until_it_is_resumed(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic, 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    load(cluster, topic, 10)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=5) as consumer:
        found = poll_until(consumer, 20)
        assert offsets(found) == offsets(found, 1) == list(range(10))
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        load(cluster, topic, 5, first=10)
        found = poll_until(consumer, 5)
        assert offsets(found, 1) == [10, 11, 12, 13, 14]
        assert not offsets(found)
        assert not consumer.poll(200)
        assert consumer.position(zero) == 10
        consumer.resume(zero)
        assert consumer.paused() == frozenset()
        assert offsets(poll_until(consumer, 5)) == [10, 11, 12, 13, 14]
        consumer.pause(zero)
        consumer.seek(zero, 4)
        assert not consumer.poll(200)
        consumer.resume(zero)
        assert offsets(poll_until(consumer, 11)) == list(range(4, 15))
    assert stored(cluster, fresh_group, zero, one) == {zero: 15, one: 15}


def test_records_of_the_last_poll_are_not_repeated_by_pause_and_resume(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, max_poll_records=3) as consumer:
        assert offsets(poll_until(consumer, 3)) == [0, 1, 2]
        consumer.pause(at)
        consumer.resume(at)
        assert offsets(poll_until(consumer, 7)) == [3, 4, 5, 6, 7, 8, 9]


# -- errors of records -------------------------------------------------------------------------------------------------


def test_a_deserializer_that_fails_stops_at_its_record_until_a_seek_goes_past_it(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)

    def number(value: bytes) -> int:
        if value == b"0:4":
            raise ValueError("no four")
        return int(value.split(b":")[1])

    with consumer_of(cluster, fresh_group, topic, value_deserializer=number) as consumer:
        assert [record.value for record in poll_until(consumer, 4)] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(DecoderFailed) as caught:
                poll_until(consumer, 1)
            assert (caught.value.offset, consumer.position(at)) == (4, 4)
            assert isinstance(caught.value.__cause__, ValueError)
        consumer.seek(at, 5)
        assert [record.value for record in poll_until(consumer, 5)] == [5, 6, 7, 8, 9]


# -- where a partition starts ------------------------------------------------------------------------------------------


def test_auto_offset_reset_says_where_a_group_without_offsets_starts(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, f"{fresh_group}-1", topic, auto_offset_reset="latest") as consumer:
        wait_until(lambda: [consumer.poll(50), consumer.assignment()][1], PATIENCE_S, "the assignment")
        assert consumer.position(at) == 10
        load(cluster, topic, 1, first=10)
        assert offsets(poll_until(consumer, 1)) == [10]
    with consumer_of(cluster, f"{fresh_group}-2", topic, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartition) as caught:
                poll_until(consumer, 1)
            assert caught.value.partitions == (at,)
        consumer.seek(at, 9)
        assert offsets(poll_until(consumer, 2)) == [9, 10]


def test_without_a_policy_the_listener_seeks_what_it_keeps_and_all_other_partitions_are_named_at_once(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    name = fresh_topic()
    cluster.create_topic(name, 6)
    load(cluster, name, 5)
    kept = {TopicPartition(name, number): 3 for number in (1, 4)}
    others = {TopicPartition(name, number) for number in (0, 2, 3, 5)}

    class Kept(Seen):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            super().on_partitions_assigned(partitions)
            for partition, offset in kept.items():
                consumer.seek(partition, offset)

    seen = Kept()
    with consumer_of(cluster, fresh_group, auto_offset_reset="none", auto_commit_interval_ms=50) as consumer:
        consumer.subscribe([name], listener=seen)
        with pytest.raises(NoOffsetForPartition) as caught:
            poll_until(consumer, 1)
        assert set(caught.value.partitions) == others
        assert seen.of("assigned") == [others | kept.keys()]
        for partition in others:
            consumer.seek(partition, 4)
        found = poll_until(consumer, 8)
        assert sorted((each.partition, each.offset) for each in found) == sorted(
            [(number, 4) for number in range(6)] + [(1, 3), (4, 3)]
        )


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_position_that_the_log_does_not_have_follows_auto_offset_reset(
    cluster: KafkaCluster, topic: str, fresh_group: str, policy: str
) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, fresh_group, topic, auto_offset_reset=policy) as consumer:
        if policy == "none":
            with pytest.raises(NoOffsetForPartition):
                poll_until(consumer, 1)
        else:
            wait_until(lambda: [consumer.poll(50), consumer.assignment()][1], PATIENCE_S, "the assignment")
        consumer.seek(at, 500)
        if policy == "none":
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange) as caught:
                    poll_until(consumer, 1)
                assert (caught.value.partition, caught.value.offset) == (at, 500)
            consumer.seek(at, 8)
            assert offsets(poll_until(consumer, 2)) == [8, 9]
        elif policy == "earliest":
            assert offsets(poll_until(consumer, 10)) == list(range(10))
        else:
            wait_until(lambda: [consumer.poll(50), consumer.position(at) == 10][1], PATIENCE_S, "the end of the log")
            load(cluster, topic, 1, first=10)
            assert offsets(poll_until(consumer, 1)) == [10]


# -- the cluster -------------------------------------------------------------------------------------------------------


def test_questions_about_the_cluster_need_no_subscription(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    at = TopicPartition(topic, 0)
    with consumer_of(cluster, None) as consumer:
        assert consumer.beginning_offsets([at]) == {at: 0}
        assert consumer.end_offsets([at]) == {at: 10}
        assert consumer.partitions_for_topic(topic) == {0}
        assert consumer.partitions_for_topic("never-heard-of") == frozenset()
        assert consumer.list_topics()[topic] == (0,)
        with pytest.raises(PollTimeout, match="never-heard-of"):
            consumer.end_offsets([TopicPartition("never-heard-of", 0)], timeout_ms=300)
        with pytest.raises(NotSubscribed):
            consumer.committed([at])
        with pytest.raises(NotSubscribed):
            consumer.subscribe([topic])
        with pytest.raises(NotSubscribed):
            consumer.poll(0)


def test_figures_have_kafkas_names(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    with consumer_of(cluster, fresh_group, topic, max_poll_records=4) as consumer:
        poll_until(consumer, 4)
        figures = consumer.metrics()
        assert figures["assigned-partitions"] == 1
        assert figures["records-lag-max"] == figures[f"records-lag.{topic}-0"] == 6
        assert figures["rebalance-total"] >= 1


# -- threads, wakeup, the end ------------------------------------------------------------------------------------------


def test_wakeup_ends_a_poll_and_loses_nothing(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    with consumer_of(cluster, fresh_group, topic) as consumer:
        poll_until(consumer, 10)
        consumer.wakeup()
        with pytest.raises(ConsumerWokenUp):
            consumer.poll(60_000)
        assert not consumer.poll(0)  # one call ends one poll
        timer = threading.Timer(0.3, consumer.wakeup)
        timer.start()
        with pytest.raises(ConsumerWokenUp):
            consumer.poll(60_000)
        timer.join()
        load(cluster, topic, 3, first=10)
        consumer.wakeup()
        with pytest.raises(ConsumerWokenUp):
            consumer.poll(1000)
        assert offsets(poll_until(consumer, 3)) == [10, 11, 12]
        consumer.wakeup()
    assert not threads_of()
    assert stored(cluster, fresh_group, TopicPartition(topic, 0)) == {TopicPartition(topic, 0): 13}


def test_a_second_thread_is_refused(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    with consumer_of(cluster, fresh_group, topic) as consumer:
        poll_until(consumer, 10)
        polling = threading.Thread(target=lambda: consumer.poll(2000), name="the first one")
        polling.start()
        with pytest.raises(ConcurrentConsumerUse, match="the first one"):
            wait_until(lambda: consumer.position(TopicPartition(topic, 0)) and False, PATIENCE_S, "the refusal")
        polling.join()
        assert consumer.position(TopicPartition(topic, 0)) == 10


def test_a_closed_consumer_refuses_calls_and_has_no_threads(
    cluster: KafkaCluster, topic: str, fresh_group: str
) -> None:
    consumer = consumer_of(cluster, fresh_group, topic)
    poll_until(consumer, 10)
    assert consumer.close() == {}
    assert not threads_of()
    assert consumer.close() == {}
    for call in (lambda: consumer.poll(0), consumer.commit_sync, consumer.assignment):
        with pytest.raises(ConsumerClosed):
            call()


def test_a_consumer_that_was_never_polled_closes_at_once(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    consumer = consumer_of(cluster, fresh_group, topic)
    assert consumer.close() == {}
    consumer = consumer_of(cluster, fresh_group, topic)
    consumer.poll(0)  # it has begun to join
    assert consumer.close() == {}
    wait_until(lambda: not threads_of(), PATIENCE_S, "the threads to end", state=threads_of)


def test_interceptors_see_records_and_commits(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    at = TopicPartition(topic, 0)
    commits: list[Any] = []

    class OnlyEven:
        def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
            kept = {name: [each for each in records.records(name) if each.offset % 2 == 0]
                    for name in records.partitions()}  # fmt: skip
            return ConsumerRecords(kept, records.next_offsets())

        def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            commits.append(dict(offsets))

    with consumer_of(
        cluster, fresh_group, topic, interceptor_classes=[OnlyEven()], enable_auto_commit=False
    ) as consumer:
        assert offsets(poll_until(consumer, 5)) == [0, 2, 4, 6, 8]
        consumer.commit_sync()
        assert commits == [{at: OffsetAndMetadata(10)}]
        consumer.commit_async()
        wait_until(lambda: [consumer.poll(10), len(commits) == 2][1], PATIENCE_S, "the second commit")


def test_an_interrupt_inside_of_poll_costs_no_record(cluster: KafkaCluster, topic: str, fresh_group: str) -> None:
    """An interrupt at many moments of `poll`: what it has taken by then is returned by the next one."""
    load(cluster, topic, 3000, first=10)
    at = TopicPartition(topic, 0)
    interrupts = 0

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        nonlocal interrupts
        while frame is not None:
            if frame.f_code is KafkaConsumer.poll.__code__:
                interrupts += 1
                raise KeyboardInterrupt
            frame = frame.f_back

    found: list[int] = []
    with consumer_of(cluster, fresh_group, topic, max_poll_records=5, auto_commit_interval_ms=20) as consumer:
        poll_until(consumer, 1)
        consumer.seek(at, 0)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0037)
            deadline = Deadline(PATIENCE_S * 2)
            while len(found) < 3010 and not deadline.expired:
                try:
                    records = consumer.poll(100)
                except KeyboardInterrupt:
                    assert consumer.position(at) == len(found)
                    continue
                found += offsets(list(records))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert found == list(range(3010))
    assert interrupts > 10
    assert stored(cluster, fresh_group, at) == {at: 3010}
