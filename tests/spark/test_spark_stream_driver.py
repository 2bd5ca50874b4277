"""The driver's side of a stream against brokers, without Spark: what it answers when logs and leaders change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from threading import Thread

import pytest

from rebalance.zookeeper import znodes
from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.spark.errors import AnotherCluster, DataLoss, GroupHasNoOffsets, MessagesLost, TopicMissing
from zkconsumer.spark.options.options import stream_options
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.spark.streaming.group_offsets import GroupHasMembers
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets
from zkconsumer.testing import EmbeddedCluster, Fault, KafkaCluster, load
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.waiting import wait_until

Drive = Callable[..., StreamDriver]
Topic = Callable[[], str]


@pytest.fixture
def drive() -> Iterator[Drive]:
    """Makes drivers: one for each run of a query."""
    with ExitStack() as stack:

        def start(cluster: Cluster, topic: str, **options: object) -> StreamDriver:
            given = {"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, "startingOffsets": "earliest",
                     **{name.replace("_", "."): str(value) for name, value in options.items()}}  # fmt: skip
            return stack.enter_context(closing(StreamDriver(stream_options(given))))

        yield start


def begin(driver: StreamDriver) -> StreamOffsets:
    """The empty first batch."""
    start = driver.initial_offsets()
    assert driver.next_offsets(start, None) == start
    assert driver.plan(start, start) == []
    return start


def grown(driver: StreamDriver, start: StreamOffsets, limit: int | None = None) -> StreamOffsets:
    """The end of the next batch, as soon as there is something to read."""
    return wait_until(lambda: _other(start, driver.next_offsets(start, limit)), 30, "news")


def _other(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets | None:
    return end if end.to_json() != start.to_json() else None


def ranges(driver: StreamDriver, start: StreamOffsets, end: StreamOffsets) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in driver.plan(start, end)]


def offsets(end: StreamOffsets) -> list[int]:
    return [end.offsets[name] for name in sorted(end.offsets)]


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Topic) -> str:
    """Two partitions with ten messages each, in two segments."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, partitions=2)
    load(embedded_cluster, name, 5)
    for partition in (0, 1):
        embedded_cluster.log(name, partition).roll()
    load(embedded_cluster, name, 5, first=5)
    return name


def test_the_first_batch_is_empty_and_the_second_has_what_is_there(
    drive: Drive, kafka_0822: KafkaCluster, fresh_topic: Topic
):
    topic = fresh_topic()
    kafka_0822.create_topic(topic, partitions=2)
    load(kafka_0822, topic, 10)
    driver = drive(kafka_0822, topic)
    start = begin(driver)
    end = driver.next_offsets(start, None)
    assert (offsets(start), offsets(end)) == ([0, 0], [10, 10])
    assert ranges(driver, start, end) == [(0, 0, 10), (1, 0, 10)]
    assert driver.next_offsets(end, None) == end
    load(kafka_0822, topic, 3, partitions=[1], first=10)
    assert offsets(grown(driver, end)) == [10, 13]


def test_a_start_at_the_end_is_kept_although_messages_come_before_the_first_batch_is_done(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    driver = drive(embedded_cluster, topic, startingOffsets="latest")
    start = driver.initial_offsets()
    load(embedded_cluster, topic, 5, first=10)
    assert driver.initial_offsets() == start  # Spark asks twice
    assert driver.next_offsets(start, None) == start
    driver.plan(start, start)
    assert ranges(driver, start, grown(driver, start)) == [(0, 10, 15), (1, 10, 15)]


def test_a_limit_is_dealt_out_by_lag(drive: Drive, embedded_cluster: EmbeddedCluster, topic: str):
    load(embedded_cluster, topic, 30, partitions=[0], first=10)
    driver = drive(embedded_cluster, topic)
    assert offsets(driver.next_offsets(begin(driver), 25)) == [20, 5]


def test_each_batch_logs_once_how_far_the_stream_is_behind_it(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
):
    load(embedded_cluster, topic, 30, partitions=[0], first=10)
    driver = drive(embedded_cluster, topic)
    with caplog.at_level(logging.INFO, "zkconsumer.spark.streaming.stream_driver"):
        start = begin(driver)
        end = driver.next_offsets(start, 25)
        driver.plan(start, end)
        driver.plan(start, end)
        last = driver.next_offsets(end, None)
        driver.plan(end, last)
        assert driver.next_offsets(last, None) == last
    lines = [record.getMessage() for record in caplog.records if "lag" in record.getMessage()]
    assert lines == [
        "lag after this batch: minOffsetsBehindLatest=5 maxOffsetsBehindLatest=20 avgOffsetsBehindLatest=12.5, "
        f"over 2 partitions of {topic}",
        "lag after this batch: minOffsetsBehindLatest=0 maxOffsetsBehindLatest=0 avgOffsetsBehindLatest=0.0, "
        f"over 2 partitions of {topic}",
    ]


def test_a_target_is_not_passed(drive: Drive, embedded_cluster: EmbeddedCluster, topic: str):
    driver = drive(embedded_cluster, topic)
    driver.fix_target()
    load(embedded_cluster, topic, 5, first=10)
    end = driver.next_offsets(begin(driver), None)
    assert offsets(end) == [10, 10]
    assert driver.next_offsets(end, None) == end
    wait_until(lambda: offsets(driver.newest_offsets()) == [15, 15], 30, "the lag to be seen")


def test_new_partitions_and_new_topics_of_a_pattern_are_read_from_their_beginning(
    drive: Drive, kafka_0822: KafkaCluster, fresh_topic: Topic, caplog: pytest.LogCaptureFixture
):
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    load(kafka_0822, topic, 5)
    options = stream_options({"zookeeper.connect": kafka_0822.zookeeper_connect, "subscribePattern": f"{topic}.*",
                              "startingOffsets": "latest"})  # fmt: skip
    with closing(StreamDriver(options)) as driver:
        at = begin(driver)
        kafka_0822.add_partitions(topic, 2)
        kafka_0822.create_topic(f"{topic}-b")
        load(kafka_0822, topic, 7, partitions=[1])
        load(kafka_0822, f"{topic}-b", 9)
        read: list[tuple[str, int, int, int]] = []

        def all_is_read() -> bool:
            nonlocal at
            end = driver.next_offsets(at, None)
            read.extend((each.topic, each.partition, each.start, each.end) for each in driver.plan(at, end))
            at = end
            return len(read) == 2

        wait_until(all_is_read, 30, "what is new to be read", state=lambda: (read, at))
        assert sorted(read) == [(topic, 1, 0, 7), (f"{topic}-b", 0, 0, 9)]


def test_a_pattern_may_match_nothing_yet(embedded_cluster: EmbeddedCluster, fresh_topic: Topic):
    topic = fresh_topic()
    options = stream_options({"zookeeper.connect": embedded_cluster.zookeeper_connect, "subscribePattern": topic,
                              "maxOffsetsPerTrigger": "10"})  # fmt: skip
    with closing(StreamDriver(options)) as driver:
        driver.fix_target()
        start = begin(driver)
        assert (start.to_json(), driver.newest_offsets().to_json()) == ({}, {})
    with closing(StreamDriver(options)) as driver:
        embedded_cluster.create_topic(topic)
        load(embedded_cluster, topic, 5)
        pinned = grown(driver, start)
        assert offsets(pinned) == [0]
        assert offsets(grown(driver, pinned)) == [5]


def test_a_batch_is_planned_the_same_again_after_a_restart(drive: Drive, embedded_cluster: EmbeddedCluster, topic: str):
    driver = drive(embedded_cluster, topic)
    start = begin(driver)
    end = driver.next_offsets(start, 7)
    load(embedded_cluster, topic, 50, first=10)
    assert ranges(drive(embedded_cluster, topic), start, end) == ranges(driver, start, end)


def test_a_planned_batch_is_read_as_a_whole_although_a_topic_was_taken_from_the_subscription_since(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    driver = drive(embedded_cluster, topic)
    start = begin(driver)
    end = driver.next_offsets(start, None)
    embedded_cluster.create_topic(f"{topic}-b")
    after = drive(embedded_cluster, f"{topic}-b")
    assert ranges(after, start, end) == [(0, 0, 10), (1, 0, 10)]


def test_what_retention_took_fails_the_stream_and_names_the_range(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    start = begin(drive(embedded_cluster, topic))
    embedded_cluster.log(topic, 1).delete_head(5)
    message = rf"{topic}-1 from offset 0 to 5: deleted before it was read; with failOnDataLoss=false"
    with pytest.raises(MessagesLost, match=message):
        drive(embedded_cluster, topic).next_offsets(start, None)
    whole = StreamOffsets({TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}, start.created_zxids)
    with pytest.raises(MessagesLost, match=message):
        drive(embedded_cluster, topic).plan(start, whole)


def test_what_retention_took_is_passed_over_counted_and_told_if_that_is_wanted(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
):
    start = begin(drive(embedded_cluster, topic))
    embedded_cluster.log(topic, 1).delete_head(5)
    driver = drive(embedded_cluster, topic, failOnDataLoss="false")
    end = driver.next_offsets(start, None)
    assert ranges(driver, start, end) == [(0, 0, 10), (1, 5, 10)]
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"{topic}-1 from offset 0 to 5: deleted before it was read; 5 offsets in this run so far" in told


def test_a_log_that_was_cut_is_a_loss_and_is_read_on_from_its_new_end(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 0.5)
    driver = drive(embedded_cluster, topic)
    end = driver.next_offsets(begin(driver), None)
    embedded_cluster.log(topic, 0).truncate(6)
    with pytest.raises(MessagesLost, match=f"{topic}-0 from offset 6 to 10: its log was truncated"):
        drive(embedded_cluster, topic).next_offsets(end, None)
    tolerant = drive(embedded_cluster, topic, failOnDataLoss="false")
    back = tolerant.next_offsets(end, None)
    assert (offsets(back), ranges(tolerant, end, back)) == ([6, 10], [])
    load(embedded_cluster, topic, 3, partitions=[0], first=20)
    assert ranges(tolerant, back, grown(tolerant, back)) == [(0, 6, 9)]


def test_an_end_that_is_lower_for_a_moment_only_is_no_loss(drive: Drive, embedded_cluster: EmbeddedCluster, topic: str):
    driver = drive(embedded_cluster, topic)
    end = driver.next_offsets(begin(driver), None)
    ahead = StreamOffsets({**end.offsets, TopicPartition(topic, 0): 12}, end.created_zxids)
    asked = embedded_cluster.faults.add(Fault.delay(0.0, api="offsets", topic=topic), times=None)

    def more() -> None:
        # By then the driver has seen an end below its position at least once.
        embedded_cluster.faults.wait_used(asked, 3)
        load(embedded_cluster, topic, 4, partitions=[0], first=10)

    loader = Thread(target=more)
    loader.start()
    assert offsets(grown(drive(embedded_cluster, topic), ahead)) == [14, 10]
    loader.join()


def test_a_topic_that_is_gone_is_a_loss_and_keeps_its_position(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    driver = drive(embedded_cluster, topic)
    end = driver.next_offsets(begin(driver), None)
    embedded_cluster.delete_topic(topic)
    with pytest.raises(MessagesLost, match="no longer exists"):
        drive(embedded_cluster, topic).next_offsets(end, None)
    assert drive(embedded_cluster, topic, failOnDataLoss="false").next_offsets(end, None) == end


def test_a_topic_created_anew_is_noticed_by_its_birth_although_it_is_longer(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    driver = drive(embedded_cluster, topic)
    start = begin(driver)
    end = driver.next_offsets(start, None)
    embedded_cluster.delete_topic(topic)
    embedded_cluster.create_topic(topic, partitions=2)
    load(embedded_cluster, topic, 25)
    with pytest.raises(MessagesLost, match=f"{topic}-0 from offset 10 on: its topic was deleted and created again"):
        drive(embedded_cluster, topic).next_offsets(end, None)
    tolerant = drive(embedded_cluster, topic, failOnDataLoss="false")
    assert tolerant.plan(start, end) == []  # a batch of the old one that is done again
    anew = tolerant.next_offsets(end, None)
    assert (offsets(anew), ranges(tolerant, end, anew)) == ([0, 0], [])
    assert ranges(tolerant, anew, grown(tolerant, anew)) == [(0, 0, 25), (1, 0, 25)]


@pytest.mark.embedded_cluster(brokers=2)
def test_a_broker_that_is_down_holds_up_its_own_partitions_alone(
    drive: Drive, embedded_cluster: EmbeddedCluster, fresh_topic: Topic
):
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, assignment={0: [0], 1: [1]})
    driver = drive(embedded_cluster, topic)
    start = begin(driver)
    embedded_cluster.stop(1)
    load(embedded_cluster, topic, 5, partitions=[0])
    end = grown(driver, start)
    assert offsets(end) == [5, 0]
    embedded_cluster.start(1)
    load(embedded_cluster, topic, 5, partitions=[1])
    assert offsets(grown(driver, end)) == [5, 5]


@pytest.mark.embedded_cluster(brokers=2)
def test_a_moved_leader_is_followed(drive: Drive, embedded_cluster: EmbeddedCluster, fresh_topic: Topic):
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, assignment={0: [0, 1]})
    driver = drive(embedded_cluster, topic)
    start = begin(driver)
    embedded_cluster.move_leader(topic, 0, 1)
    load(embedded_cluster, topic, 5)
    end = grown(driver, start)
    assert offsets(end) == [5]
    [planned] = driver.plan(start, end)
    assert planned.leader is not None
    assert planned.leader.id == 1


def test_an_idle_stream_asks_brokers_seldom_however_often_it_is_asked(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    driver = drive(embedded_cluster, topic)
    end = driver.next_offsets(begin(driver), None)
    asked = embedded_cluster.faults.add(Fault.delay(0.0, topic=topic), times=None)
    for _ in range(1000):
        assert driver.next_offsets(end, None) == end
        driver.newest_offsets()
    # A thousand polls last less than a second: some five questions, and some more on a busy machine.
    assert embedded_cluster.faults.used(asked) < 100


def test_a_stream_goes_on_while_zookeeper_is_away_and_says_so_once(
    drive: Drive, fresh_topic: Topic, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stream_logs, "TOPICS_S", 0.0)
    with EmbeddedCluster() as cluster:
        topic = fresh_topic()
        cluster.create_topic(topic)
        driver = drive(cluster, topic)
        start = begin(driver)
        load(cluster, topic, 5)
        cluster.zookeeper.kill()
        end = grown(driver, start)
        assert ranges(driver, start, end) == [(0, 0, 5)]
        for _ in range(500):  # Spark asks sixty times a second
            driver.newest_offsets()
        assert caplog.text.count("topics are assumed to be unchanged") == 1


@pytest.fixture
def other() -> Iterator[EmbeddedCluster]:
    """Another cluster; asked for before `drive`, it ends after the drivers, which would wait for it otherwise."""
    with EmbeddedCluster() as running:
        yield running


def test_a_checkpoint_of_another_cluster_is_refused_although_that_was_set_up_alike(
    other: EmbeddedCluster, drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
):
    driver = drive(embedded_cluster, topic)
    start = begin(driver)
    end = driver.next_offsets(start, None)
    other.create_topic(topic, partitions=2)
    load(other, topic, 50)
    created_zxids = begin(drive(other, topic)).created_zxids
    start, end = [StreamOffsets(each.offsets, created_zxids, each.cluster_ms) for each in (start, end)]
    mistaken = drive(other, topic, group_id=fresh_group, failOnDataLoss="false")
    with pytest.raises(AnotherCluster, match=f"was created at 20.*that of {other.zookeeper_connect} at 20"):
        mistaken.next_offsets(end, None)
    with pytest.raises(AnotherCluster):
        drive(other, topic).plan(start, end)
    assert other.client.exists(f"{znodes.group_path(fresh_group)}/offsets") is None


def test_a_name_that_is_new_in_the_options_has_to_be_there(drive: Drive, embedded_cluster: EmbeddedCluster, topic: str):
    driver = drive(embedded_cluster, topic)
    end = driver.next_offsets(begin(driver), None)
    for tolerant in ("true", "false"):
        with pytest.raises(TopicMissing, match=f"topic '{topic}x' does not exist.*did you mean '{topic}'"):
            drive(embedded_cluster, f"{topic},{topic}x", failOnDataLoss=tolerant).next_offsets(end, None)
    assigned = {"zookeeper.connect": embedded_cluster.zookeeper_connect, "assign": f'{{"{topic}": [0, 2]}}'}
    mistaken = StreamDriver(stream_options(assigned))
    with closing(mistaken), pytest.raises(TopicMissing, match=f"partition 2 of topic '{topic}' does not exist"):
        mistaken.next_offsets(end, None)


def test_a_topic_or_an_offset_that_is_named_and_not_there_is_refused(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    with pytest.raises(TopicMissing, match=f"{topic}x"):
        drive(embedded_cluster, f"{topic}x").initial_offsets()
    beyond = f'{{"{topic}": {{"0": 11, "1": -2}}}}'
    with pytest.raises(DataLoss, match="0 to 10, startingOffsets is 11"):
        drive(embedded_cluster, topic, startingOffsets=beyond).initial_offsets()


def test_what_is_durable_is_stored_for_the_group_and_no_more(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
):
    def stored(partition: int) -> bytes | None:
        path = znodes.offset_path(fresh_group, topic, partition)
        return embedded_cluster.client.get(path)[0] if embedded_cluster.client.exists(path) else None

    driver = drive(embedded_cluster, topic, group_id=fresh_group)
    start = begin(driver)
    end = driver.next_offsets(start, 10)
    driver.plan(start, end)
    assert (stored(0), stored(1)) == (b"0", b"0")  # the empty first batch is durable, the second is not
    driver.next_offsets(end, 10)
    assert (stored(0), stored(1)) == (b"5", b"5")
    resumed = drive(embedded_cluster, topic, group_id=fresh_group, startingOffsets="group")
    assert resumed.initial_offsets() == end


def test_offsets_of_a_group_from_the_topics_earlier_life_are_none(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
):
    driver = drive(embedded_cluster, topic, group_id=fresh_group)
    driver.next_offsets(driver.next_offsets(begin(driver), None), None)
    embedded_cluster.delete_topic(topic)
    embedded_cluster.create_topic(topic, partitions=2)
    load(embedded_cluster, topic, 25)
    anew = drive(embedded_cluster, topic, group_id=fresh_group, startingOffsets="group")
    start = begin(anew)
    assert offsets(start) == [0, 0]
    anew.next_offsets(start, None)
    path = znodes.offset_path(fresh_group, topic, 0)
    assert embedded_cluster.client.get(path)[0] == b"0"  # what monitors see is of the new topic, too


def test_few_offsets_wait_for_more_and_what_else_has_changed_does_not(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str
):
    driver = drive(embedded_cluster, topic, minOffsetsPerTrigger=15)

    def looked_at(end: StreamOffsets) -> StreamOffsets:
        return driver.next_offsets(end, None, may_wait=True)

    start = begin(driver)
    end = wait_until(lambda: _other(start, looked_at(start)), 30, "all that is there")
    assert offsets(end) == [10, 10]
    load(embedded_cluster, topic, 7, first=10)
    driver.newest_offsets()
    assert looked_at(end) == end
    embedded_cluster.add_partitions(topic, 3)
    embedded_cluster.wait_leaders(topic, [2])
    wider = wait_until(lambda: _other(end, looked_at(end)), 30, "the new partition")
    assert offsets(wider) == [10, 10, 0]
    load(embedded_cluster, topic, 1, first=17)
    more = wait_until(lambda: _other(wider, looked_at(wider)), 30, "enough")
    assert offsets(more) == [18, 18, 1]


def test_a_target_is_reached_with_fewer_offsets_too(drive: Drive, embedded_cluster: EmbeddedCluster, topic: str):
    driver = drive(embedded_cluster, topic, minOffsetsPerTrigger=1000)
    driver.fix_target()
    start = begin(driver)
    end = wait_until(lambda: _other(start, driver.next_offsets(start, None, may_wait=True)), 30, "all")
    assert offsets(end) == [10, 10]


def test_a_group_without_any_offset_is_refused(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
):
    with pytest.raises(GroupHasNoOffsets, match=f"group '{fresh_group}' has no offset of {topic}/0, nor of any other"):
        drive(embedded_cluster, topic, group_id=fresh_group, startingOffsets="group").initial_offsets()


def test_the_start_of_a_first_batch_is_not_stored_before_it_is_in_the_checkpoint(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
):
    driver = drive(embedded_cluster, topic, group_id=fresh_group, startingOffsets="latest")
    driver.next_offsets(driver.initial_offsets(), None)
    assert embedded_cluster.client.exists(f"{znodes.group_path(fresh_group)}/offsets") is None


def test_a_group_with_live_members_is_refused_at_the_start_by_their_names(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
):
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, fresh_group, consumer_id="ann")
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        wait_until(lambda: embedded_cluster.client.exists(f"{znodes.group_path(fresh_group)}/ids"), 30, "the member")
        wait_until(lambda: embedded_cluster.client.get_children(f"{znodes.group_path(fresh_group)}/ids"), 30, "ann")
        with pytest.raises(GroupHasMembers, match="ann"):
            drive(embedded_cluster, topic, group_id=fresh_group).open()
        drive(embedded_cluster, topic, group_id=fresh_group, commitOffsets="false").open()
        drive(embedded_cluster, topic, group_id=fresh_group, commitToLiveGroup="true").open()


def test_members_that_join_later_stop_the_storing_and_not_the_stream(
    drive: Drive, embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, caplog: pytest.LogCaptureFixture
):
    driver = drive(embedded_cluster, topic, group_id=fresh_group)
    start = begin(driver)
    client = embedded_cluster.client
    client.create(f"{znodes.group_path(fresh_group)}/ids/{fresh_group}_late", b"{}", ephemeral=True, makepath=True)
    end = driver.next_offsets(start, None)
    driver.next_offsets(end, None)
    assert client.exists(znodes.offset_path(fresh_group, topic, 0)) is None
    assert "_late" in caplog.text
    client.delete(f"{znodes.group_path(fresh_group)}/ids/{fresh_group}_late")
    load(embedded_cluster, topic, 1, first=10)
    driver.next_offsets(grown(driver, end), None)
    assert client.get(znodes.offset_path(fresh_group, topic, 0))[0] == b"11"
