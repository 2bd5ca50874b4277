"""KafkaConsumer on real brokers: topics, patterns and assigned partitions, and how they exclude each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import pytest
from polling import PATIENCE_S, VERSIONS, Seen, consumer_of, offsets, poll_until, settings_of, stored, threads_of

from simpleconsumer.types import TopicPartition
from zkconsumer import ConfigError, ConsumerRecord, KafkaConsumer, OffsetAndMetadata, RebalanceCallbacks
from zkconsumer.polling.errors import ConsumerClosed, NotSubscribed, SubscriptionConflict
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def topics(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> tuple[str, str]:
    """Two topics of two partitions with five records each; their names start with the same word."""
    name = fresh_topic()
    for each in (f"{name}-a", f"{name}-b"):
        cluster.create_topic(each, 2)
        load(cluster, each, 5)
    return f"{name}-a", f"{name}-b"


def names(*topics: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for topic in topics for number in (0, 1))


def topics_of(records: Collection[ConsumerRecord[bytes, bytes]]) -> set[str]:
    return {record.topic for record in records}


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_member_that_subscribes_to_other_topics_gives_back_the_rest(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    a, b = topics
    seen = Seen()
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe([a], listener=seen)
        assert topics_of(poll_until(consumer, 10)) == {a}
        consumer.subscribe([a, b], listener=seen)
        assert topics_of(poll_until(consumer, 10)) == {b}
        assert consumer.assignment() == seen.held == names(a, b)
        before = list(seen.calls)
        consumer.subscribe([b], listener=seen)
        assert seen.calls == before, "callbacks run in polls"
        assert consumer.assignment() == names(a, b)
        wait_until(lambda: [consumer.poll(50), consumer.assignment() == names(b)][1], PATIENCE_S, "the rest to go")
        load(cluster, a, 1, first=5)
        load(cluster, b, 1, first=5)
        assert topics_of(poll_until(consumer, 2)) == {b}
        assert seen.held == names(b)
        assert not seen.of("lost")
    assert seen.held == frozenset()
    assert set(stored(cluster, fresh_group, *names(a)).values()) == {5}
    assert set(stored(cluster, fresh_group, *names(b)).values()) == {6}


def test_the_same_topics_again_change_nothing_but_the_listener(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    before, after = Seen(), Seen()
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe(topics, listener=before)
        poll_until(consumer, 20)
        consumer.subscribe(reversed(topics), listener=after)  # type: ignore[arg-type]
        assert not consumer.poll(500)
    assert before.calls == [("assigned", names(*topics))]
    assert after.calls == [("revoked", names(*topics))]


def test_unsubscribe_commits_and_leaves_and_subscribe_goes_on_there(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    a, b = topics
    seen = Seen()
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe([a], listener=seen)
        poll_until(consumer, 10)
        consumer.unsubscribe()
        assert not consumer.assignment()
        assert not consumer.subscription()
        assert seen.calls == [("assigned", names(a)), ("revoked", names(a))]
        assert not threads_of()
        assert set(stored(cluster, fresh_group, *names(a)).values()) == {5}
        with pytest.raises(NotSubscribed):
            consumer.poll(0)
        load(cluster, a, 1, first=5)
        consumer.subscribe([a, b])
        found = poll_until(consumer, 12)
        assert sorted((record.topic, record.offset) for record in found if record.topic == a) == [(a, 5), (a, 5)]
        consumer.subscribe([])  # as unsubscribe
        assert not consumer.subscription()
    assert set(stored(cluster, fresh_group, *names(a)).values()) == {6}


def test_a_listener_commits_what_it_loses_by_an_empty_subscription(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    class Commits(RebalanceCallbacks):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit_sync()

    a, _ = topics
    with consumer_of(cluster, fresh_group, enable_auto_commit=False) as consumer:
        consumer.subscribe([a], listener=Commits())
        poll_until(consumer, 10)
        consumer.subscribe([])
    assert set(stored(cluster, fresh_group, *names(a)).values()) == {5}


def test_a_pattern_takes_topics_that_appear_later(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    a, b = topics
    seen = Seen()
    more = {} if cluster.version == "0.8.2.2" else {"metadata_max_age_ms": 500}
    with consumer_of(cluster, fresh_group, **more) as consumer:
        consumer.subscribe(pattern=f"{a[:-2]}-[a-c]", listener=seen)
        assert topics_of(poll_until(consumer, 20)) == {a, b}
        assert consumer.subscription() == {a, b}
        c = f"{a[:-2]}-c"
        cluster.create_topic(c, 2)
        cluster.create_topic(f"{a[:-2]}-d", 1)
        load(cluster, c, 5)
        assert topics_of(poll_until(consumer, 10)) == {c}
        assert consumer.subscription() == {a, b, c}
        assert seen.held == names(a, b, c)


def test_topics_a_pattern_and_partitions_exclude_each_other(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    a, b = topics
    calls: dict[str, Callable[[KafkaConsumer], None]] = {
        "topics": lambda consumer: consumer.subscribe([a]),
        "pattern": lambda consumer: consumer.subscribe(pattern=a),
        "partitions": lambda consumer: consumer.assign(names(a)),
    }
    with consumer_of(cluster, fresh_group) as consumer:
        for first, call in calls.items():
            call(consumer)
            for second, other in calls.items():
                if first != second:
                    with pytest.raises(SubscriptionConflict):
                        other(consumer)
            consumer.unsubscribe()
        with pytest.raises(TypeError, match="both topics and a pattern"):
            consumer.subscribe([a], pattern=b)
        with pytest.raises(TypeError, match="it must be a list of names"):
            consumer.subscribe(a)


def test_a_topic_that_does_not_exist_yet_is_read_when_it_does(
    cluster: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    topic = fresh_topic()
    more = {} if cluster.version == "0.8.2.2" else {"metadata_max_age_ms": 500}
    with consumer_of(cluster, fresh_group, topic, **more) as consumer:
        assert not consumer.poll(1500)
        assert not consumer.assignment()
        cluster.create_topic(topic, 1)
        load(cluster, topic, 3)
        assert offsets(poll_until(consumer, 3)) == [0, 1, 2]


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_a_seek_inside_of_on_partitions_assigned_says_where_reading_starts(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    class Seeks(RebalanceCallbacks):
        threads: list[threading.Thread]

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            self.threads = [threading.current_thread()]
            assert set(partitions) == names(a) == consumer.assignment()
            consumer.seek(TopicPartition(a, 0), 3)
            consumer.seek_to_end(TopicPartition(a, 1))
            assert consumer.position(TopicPartition(a, 1)) == 5

    a, _ = topics
    callbacks = Seeks()
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe([a], listener=callbacks)
        found = poll_until(consumer, 2)
        assert (offsets(found), offsets(found, 1)) == ([3, 4], [])
        assert callbacks.threads == [threading.current_thread()]


def test_a_pause_inside_of_on_partitions_assigned_counts(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    class Pauses(RebalanceCallbacks):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            consumer.pause(TopicPartition(a, 0))

    a, _ = topics
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe([a], listener=Pauses())
        found = poll_until(consumer, 5)
        assert not consumer.poll(300)
        assert (offsets(found), offsets(found, 1)) == ([], [0, 1, 2, 3, 4])
        consumer.resume(TopicPartition(a, 0))
        assert offsets(poll_until(consumer, 5)) == [0, 1, 2, 3, 4]


def test_an_error_of_a_callback_is_raised_by_poll_and_polling_goes_on(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    class Fails(RebalanceCallbacks):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise LookupError("of the application")

    a, _ = topics
    with consumer_of(cluster, fresh_group) as consumer:
        consumer.subscribe([a], listener=Fails())
        with pytest.raises(LookupError, match="of the application"):
            poll_until(consumer, 1)
        assert len(poll_until(consumer, 10)) == 10


def test_an_interrupt_of_a_callback_is_raised_by_poll(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    class Interrupted(RebalanceCallbacks):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise KeyboardInterrupt

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            raise KeyboardInterrupt

    a, _ = topics
    consumer = consumer_of(cluster, fresh_group)
    consumer.subscribe([a], listener=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        poll_until(consumer, 1)
    assert len(poll_until(consumer, 10)) == 10
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert not threads_of()
    assert set(stored(cluster, fresh_group, *names(a)).values()) == {5}


def test_a_callback_may_close_the_consumer(cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str) -> None:
    class Closes(RebalanceCallbacks):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            consumer.close()

    a, _ = topics
    consumer = consumer_of(cluster, fresh_group)
    consumer.subscribe([a], listener=Closes())
    with pytest.raises(ConsumerClosed):
        poll_until(consumer, 1)
    assert not threads_of()
    with consumer_of(cluster, fresh_group, a) as other:
        assert len(poll_until(other, 10)) == 10


def test_a_callback_may_close_the_consumer_that_is_being_closed(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    class Closes(RebalanceCallbacks):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.close()

    a, _ = topics
    consumer = consumer_of(cluster, fresh_group)
    consumer.subscribe([a], listener=Closes())
    poll_until(consumer, 10)
    consumer.close()
    assert not threads_of()
    assert set(stored(cluster, fresh_group, *names(a)).values()) == {5}


# -- partitions without a group ----------------------------------------------------------------------------------------


def test_assigned_partitions_are_read_without_a_group(cluster: KafkaCluster, topics: tuple[str, str]) -> None:
    a, b = topics
    zero, one, other = TopicPartition(a, 0), TopicPartition(a, 1), TopicPartition(b, 0)
    with consumer_of(cluster, None) as consumer:
        consumer.assign([zero])
        assert consumer.assignment() == {zero}
        assert consumer.position(zero) == 0
        assert offsets(poll_until(consumer, 5)) == [0, 1, 2, 3, 4]
        consumer.assign([zero, one])  # what stays keeps its position
        found = poll_until(consumer, 5)
        assert (offsets(found), offsets(found, 1)) == ([], [0, 1, 2, 3, 4])
        consumer.assign([other])
        consumer.seek(other, 3)
        assert [(record.topic, record.offset) for record in poll_until(consumer, 2)] == [(b, 3), (b, 4)]
        with pytest.raises(NotSubscribed):
            consumer.commit_sync()
        consumer.assign([])
        assert not consumer.assignment()
        assert not threads_of()


def test_a_seek_right_after_assign_is_where_reading_starts(cluster: KafkaCluster, topics: tuple[str, str]) -> None:
    at = TopicPartition(topics[0], 1)
    for policy in ("earliest", "latest", "none"):
        with consumer_of(cluster, None, auto_offset_reset=policy) as consumer:
            consumer.assign([at])
            consumer.seek(at, 2)
            assert offsets(poll_until(consumer, 3), 1) == [2, 3, 4]
            consumer.seek_to_beginning(at)
            assert offsets(poll_until(consumer, 5), 1) == [0, 1, 2, 3, 4]


def test_a_commit_right_after_assign_is_taken(cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str) -> None:
    one, other = TopicPartition(topics[0], 1), TopicPartition(topics[1], 0)
    more = {"offsets_storage": "kafka", "dual_commit_enabled": False} if cluster.version == "0.8.2.2" else {}
    for number in range(10):
        with consumer_of(cluster, fresh_group, enable_auto_commit=False, **more) as consumer:
            for names in ([one], [one, other]):
                consumer.assign(names)
                consumer.commit_sync({names[-1]: number % 5})
    with consumer_of(cluster, fresh_group, enable_auto_commit=False, **more) as consumer:
        consumer.assign([one, other])
        assert {name: at and at.offset for name, at in consumer.committed([one, other]).items()} == {one: 4, other: 4}


def test_assigned_partitions_use_the_offsets_of_the_group(
    cluster: KafkaCluster, topics: tuple[str, str], fresh_group: str
) -> None:
    at = TopicPartition(topics[0], 0)
    more = {"offsets_storage": "kafka", "dual_commit_enabled": False} if cluster.version == "0.8.2.2" else {}
    with consumer_of(cluster, fresh_group, max_poll_records=2, **more) as consumer:
        consumer.assign([at])
        assert offsets(poll_until(consumer, 2)) == [0, 1]
        consumer.commit_sync({at: OffsetAndMetadata(1, "checkpoint")})
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 1
        if cluster.version != "0.8.2.2":
            assert committed.metadata == "checkpoint"
        assert offsets(poll_until(consumer, 2)) == [2, 3]
    with consumer_of(cluster, fresh_group, **more) as consumer:
        consumer.assign([at])
        assert offsets(poll_until(consumer, 1)) == [4]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_setting_that_does_not_exist_is_refused_with_the_nearest_one(cluster: KafkaCluster) -> None:
    with pytest.raises(ConfigError, match="max_poll_records"):
        KafkaConsumer(**settings_of(cluster, "g", max_pol_records=3))
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        KafkaConsumer(**settings_of(cluster, "g", auto_offset_reset="first"))
