"""Which messages count as done, and what is written to the offset nodes, against real brokers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    config,
    member,
    offset_node,
    offsets_of,
    position,
    preset_offset,
    produce,
    read,
    read_available,
    stored,
    texts,
    wait_owners,
    wait_stored,
)
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer import (
    CommitFailed,
    ConsumerConfig,
    ConsumerConnector,
    DecoderFailed,
    RebalanceListener,
    TopicPartition,
)
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import Deadline, wait_until

NEVER_MS = 3_600_000
MEMBER_THAT_DIES = Path(__file__).with_name("member_that_dies.py")


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions with ten messages each; the first members of these tests read partition 0 first."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=2)
    return name


@pytest.fixture
def ten(kafka_0822: KafkaCluster, topic: str) -> str:
    """The topic, with the messages "0" to "9" in partition 0."""
    produce(kafka_0822, topic, 0, [str(n) for n in range(10)])
    return topic


# -- what counts as done -----------------------------------------------------------------------------------------------


def test_auto_commit_leaves_out_the_message_in_hand_until_the_next_is_asked_for(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_interval_ms=20) as consumer:
        [stream] = consumer.create_message_streams({ten: 1})[ten]
        read(stream, 3)
        wait_stored(kafka_0822, fresh_group, ten, 0, 2)
        read(stream, 1)
        wait_stored(kafka_0822, fresh_group, ten, 0, 3)


def test_an_explicit_commit_counts_the_message_in_hand_of_the_calling_thread(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        [stream] = consumer.create_message_streams({ten: 1})[ten]
        read(stream, 3)
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"3"


def test_an_explicit_commit_leaves_out_what_another_thread_has_in_hand(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    produce(kafka_0822, ten, 1, [str(n) for n in range(10)])
    holding, let_go = threading.Event(), threading.Event()

    def work(message: object) -> None:
        if message.offset == 2:  # type: ignore[attr-defined]
            holding.set()
            let_go.wait(PATIENCE_S)

    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        mine, others = consumer.create_message_streams({ten: 2})[ten]
        reader = BackgroundReader(others, handle=work)
        assert holding.wait(PATIENCE_S)
        read(mine, 5)
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"5"
        assert stored(kafka_0822, fresh_group, ten, 1) == b"2"
        let_go.set()
        reader.wait(10)


def test_a_block_left_by_an_exception_commits_done_messages_only(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    settings = {"auto_commit_interval_ms": NEVER_MS, "rebalance_drain_timeout_ms": 60_000}

    def work() -> None:
        with member(kafka_0822, fresh_group, **settings) as consumer:
            read(consumer.create_message_streams({ten: 1})[ten], 3)
            raise ZeroDivisionError

    deadline = Deadline(PATIENCE_S)
    with pytest.raises(ZeroDivisionError):
        work()
    assert not deadline.expired  # the message in hand is this thread's own: nobody would finish it
    assert stored(kafka_0822, fresh_group, ten, 0) == b"2"


def test_a_clean_end_of_the_block_counts_the_message_in_hand(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_interval_ms=NEVER_MS) as consumer:
        read(consumer.create_message_streams({ten: 1})[ten], 3)
    assert stored(kafka_0822, fresh_group, ten, 0) == b"3"


@pytest.mark.catalogue("E9")
def test_the_message_in_the_hands_of_a_process_that_dies_comes_again(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, tmp_path: Path
) -> None:
    arguments = {"zookeeper": kafka_0822.zookeeper_connect, "group": fresh_group, "topic": ten, "read": 4}
    command = [sys.executable, str(MEMBER_THAT_DIES), json.dumps(arguments)]
    child = ChildProcess("a member that dies", command, tmp_path / "member.log")
    try:
        assert child.wait(PATIENCE_S) == 3, child.tail()
    finally:
        child.kill()
    assert stored(kafka_0822, fresh_group, ten, 0) == b"3"
    with member(kafka_0822, fresh_group) as consumer:
        assert offsets_of(read(consumer.create_message_streams({ten: 1})[ten], 7), 0) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.catalogue("E2")
@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_a_commit_inside_a_compressed_set_is_exact(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str, codec: str
) -> None:
    produce(kafka_0822, topic, 0, [str(n) for n in range(10)], codec)
    with member(kafka_0822, fresh_group) as consumer:
        assert texts(read(consumer.create_message_streams({topic: 1})[topic], 5)) == ["0", "1", "2", "3", "4"]
    assert stored(kafka_0822, fresh_group, topic, 0) == b"5"
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert texts(read(stream, 5)) == ["5", "6", "7", "8", "9"]
        assert read_available(stream) == []


# -- commits of a map --------------------------------------------------------------------------------------------------


def test_a_map_sets_offsets_up_and_down_and_the_next_member_obeys(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        stream = consumer.create_message_streams({ten: 1})[ten][0]
        read(stream, 10)
        for offset in (8, 2):
            consumer.commit_offsets({TopicPartition(ten, 0): offset})
            assert stored(kafka_0822, fresh_group, ten, 0) == str(offset).encode()
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        assert read(consumer.create_message_streams({ten: 1})[ten], 1)[0].offset == 2


def test_a_partition_that_is_not_owned_is_refused_by_name_and_the_others_are_stored(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        consumer.create_message_streams({ten: 1})
        with pytest.raises(CommitFailed, match=r"elsewhere/0: this member does not own it") as raised:
            consumer.commit_offsets({TopicPartition(ten, 0): 4, TopicPartition("elsewhere", 0): 1})
        assert set(raised.value.reasons) == {("elsewhere", 0)}
        assert stored(kafka_0822, fresh_group, ten, 0) == b"4"
        assert stored(kafka_0822, fresh_group, "elsewhere", 0) is None


@pytest.mark.parametrize("offset", [-1, "7", 1.0, True])
def test_an_offset_that_is_none_is_refused(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, offset: object
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        consumer.create_message_streams({ten: 1})
        with pytest.raises(ValueError, match=f"{ten}-0"):
            consumer.commit_offsets({TopicPartition(ten, 0): offset})  # type: ignore[dict-item]
        assert stored(kafka_0822, fresh_group, ten, 0) is None


# -- commits and rebalances --------------------------------------------------------------------------------------------


class CommittingListener(RebalanceListener):
    """Commits in every callback in which that is allowed, and keeps what it saw."""

    def __init__(self) -> None:
        self.connector: ConsumerConnector | None = None
        self.errors: list[Exception] = []
        self.revoked: list[TopicPartition] = []

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.revoked += partitions
        self._commit()

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self._commit(positions)

    def _commit(self, offsets: dict[TopicPartition, int] | None = None) -> None:
        try:
            assert self.connector is not None
            self.connector.commit_offsets(offsets)
        except Exception as error:  # noqa: BLE001 - the test looks at it; the connector would only log it
            self.errors.append(error)


def test_a_listener_may_commit_when_partitions_come_when_they_go_and_at_shutdown(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    produce(kafka_0822, ten, 1, [str(n) for n in range(10)])
    listener = CommittingListener()
    with (
        member(kafka_0822, fresh_group, "a", listener, auto_commit_enable=False) as a,
        member(kafka_0822, fresh_group, "b", auto_commit_enable=False) as b,
    ):
        listener.connector = a
        reader = BackgroundReader(*a.create_message_streams({ten: 1})[ten])
        for partition in (0, 1):
            wait_stored(kafka_0822, fresh_group, ten, partition, 0)  # by on_partitions_assigned
        reader.wait(20)
        wait_until(lambda: position(a, ten, 1) == 10, PATIENCE_S, "all to be done", state=a.status)
        b.create_message_streams({ten: 1})
        # Released only after on_partitions_revoked: nothing is left for the new owner.
        wait_until(lambda: position(b, ten, 1) == 10, PATIENCE_S, "the new owner to begin at the end", state=b.status)
        assert stored(kafka_0822, fresh_group, ten, 1) == b"10"
        a.shutdown()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"10"
    assert listener.errors == []
    assert sorted(listener.revoked) == [(ten, 0), (ten, 1)]


@pytest.mark.catalogue("E8")
def test_without_auto_commit_nothing_is_written_at_a_rebalance_or_at_shutdown(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    produce(kafka_0822, ten, 1, [str(n) for n in range(10)])
    a_id = f"{fresh_group}_a-0"
    with member(kafka_0822, fresh_group, "a", auto_commit_enable=False) as a:
        reader = BackgroundReader(*a.create_message_streams({ten: 1})[ten])
        reader.wait(20)
        a.commit_offsets({TopicPartition(ten, 1): 4})
        for _ in range(3):
            with member(kafka_0822, fresh_group, "b", auto_commit_enable=False) as b:
                streams = b.create_message_streams({ten: 1})[ten]
                assert read(streams, 1)[0].offset == 4  # from the last commit, not from where the other one was
            wait_owners(kafka_0822, fresh_group, ten, {0: a_id, 1: a_id})
    assert stored(kafka_0822, fresh_group, ten, 0) is None
    assert stored(kafka_0822, fresh_group, ten, 1) == b"4"


@pytest.mark.catalogue("E7")
def test_the_first_position_is_written_at_once_so_that_nothing_is_skipped_after_a_death(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    """With `largest`, a member that dies before its first commit must not make its successor start at a later end."""
    settings = {"auto_offset_reset": "largest", "auto_commit_interval_ms": NEVER_MS}
    with member(kafka_0822, fresh_group, **settings) as first:
        first.create_message_streams({ten: 1})
        wait_stored(kafka_0822, fresh_group, ten, 0, 10)
        wait_stored(kafka_0822, fresh_group, ten, 1, 0)
    sent = produce(kafka_0822, ten, 0, ["while nobody was there"])
    with member(kafka_0822, fresh_group, **settings) as second:
        assert texts(read(second.create_message_streams({ten: 1})[ten], 1)) == sent


@pytest.mark.catalogue("K6")
def test_a_commit_without_zookeeper_fails_within_the_session_and_names_the_partition(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with TcpProxy(kafka_0822.zookeeper_hosts) as proxy:
        settings = config(kafka_0822, fresh_group, zookeeper_session_timeout_ms=2000, auto_commit_enable=False)
        properties = settings.to_properties() | {"zookeeper.connect": proxy.address}
        consumer = ConsumerConnector(ConsumerConfig.from_properties(properties))
        [stream] = consumer.create_message_streams({ten: 1})[ten]
        read(stream, 3)
        proxy.stall()
        deadline = Deadline(PATIENCE_S)
        with pytest.raises(CommitFailed) as raised:
            consumer.commit_offsets()
        assert (ten, 0) in raised.value.reasons
        assert not deadline.expired
        proxy.clear()

        def committed() -> bool:
            try:
                consumer.commit_offsets({TopicPartition(ten, 0): 3})
            except CommitFailed:
                return False
            return True

        # The session may have ended meanwhile: the member registers and claims anew, and can commit again.
        wait_until(committed, PATIENCE_S, "a commit to succeed again", state=consumer.status)
        assert stored(kafka_0822, fresh_group, ten, 0) == b"3"
        consumer.shutdown(timeout=1)


# -- offset nodes written by others ------------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"", b"abc", b"-1", b"4\n", b"4.0", b"9" * 20, b"\xff\xfe"])
def test_an_unreadable_offset_node_counts_as_absent_and_the_other_partition_goes_on(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, garbage: bytes
) -> None:
    produce(kafka_0822, ten, 1, [str(n) for n in range(10)])
    preset_offset(kafka_0822, fresh_group, ten, 0, garbage)
    preset_offset(kafka_0822, fresh_group, ten, 1, b"7")
    with member(kafka_0822, fresh_group) as consumer:
        received = read(consumer.create_message_streams({ten: 1})[ten], 13)
        assert offsets_of(received, 0) == list(range(10))
        assert offsets_of(received, 1) == [7, 8, 9]
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"10"


@pytest.mark.catalogue("E6")
@pytest.mark.parametrize("offset", [0, 1])
def test_zero_is_an_offset_like_any_other(kafka_0822: KafkaCluster, fresh_group: str, ten: str, offset: int) -> None:
    preset_offset(kafka_0822, fresh_group, ten, 0, str(offset).encode())
    with member(kafka_0822, fresh_group, auto_offset_reset="largest") as consumer:
        assert read(consumer.create_message_streams({ten: 1})[ten], 1)[0].offset == offset


@pytest.mark.catalogue("E4")
def test_an_offset_lowered_by_hand_under_a_living_owner_is_put_right(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        [stream] = consumer.create_message_streams({ten: 1})[ten]
        read(stream, 5)
        consumer.commit_offsets()
        kafka_0822.client.set(offset_node(fresh_group, ten, 0), b"1")
        read(stream, 1)
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"6"


@pytest.mark.catalogue("E4")
def test_an_offset_raised_by_hand_is_left_alone_until_it_is_passed(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
        [stream] = consumer.create_message_streams({ten: 1})[ten]
        read(stream, 5)
        consumer.commit_offsets()
        kafka_0822.client.set(offset_node(fresh_group, ten, 0), b"8")
        read(stream, 1)
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"8"
        read(stream, 3)
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, ten, 0) == b"9"


def test_an_offset_set_by_hand_takes_effect_at_the_next_claim(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    with member(kafka_0822, fresh_group, "a") as a:
        BackgroundReader(*a.create_message_streams({ten: 1})[ten]).wait(10)
        wait_stored(kafka_0822, fresh_group, ten, 0, 10)
    kafka_0822.client.set(offset_node(fresh_group, ten, 0), b"6")
    with member(kafka_0822, fresh_group, "b") as b:
        assert offsets_of(read(b.create_message_streams({ten: 1})[ten], 4), 0) == [6, 7, 8, 9]


def test_brokers_read_and_write_the_same_offsets(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    """OffsetFetch and OffsetCommit version 0, which are about ZooKeeper."""
    place = TopicPartition(ten, 0)
    with SimpleConsumer("127.0.0.1", kafka_0822.port(0)) as broker:
        with member(kafka_0822, fresh_group) as consumer:
            read(consumer.create_message_streams({ten: 1})[ten], 4)
        assert broker.fetch_offsets(fresh_group, [place])[place].offset == 4
        broker.commit_offsets(fresh_group, {place: 8})
    with member(kafka_0822, fresh_group) as consumer:
        assert read(consumer.create_message_streams({ten: 1})[ten], 1)[0].offset == 8


@pytest.mark.catalogue("E11")
def test_an_offset_node_that_cannot_be_written_fails_alone(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    produce(kafka_0822, ten, 1, ["a", "b"])
    preset_offset(kafka_0822, fresh_group, ten, 1, b"0")
    path = offset_node(fresh_group, ten, 1)
    kafka_0822.client.set_acls(path, [make_acl("world", "anyone", read=True, admin=True)])
    try:
        with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
            read(consumer.create_message_streams({ten: 1})[ten], 12)
            with pytest.raises(CommitFailed) as raised:
                consumer.commit_offsets()
            assert set(raised.value.reasons) == {(ten, 1)}
            assert stored(kafka_0822, fresh_group, ten, 0) == b"10"
    finally:
        kafka_0822.client.retry(kafka_0822.client.set_acls, path, OPEN_ACL_UNSAFE)  # other tests share the server


# -- decoders ----------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("G4")
def test_a_decoder_that_throws_is_told_once_and_the_next_message_follows(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    produce(kafka_0822, topic, 0, ["1", "two", "3"])
    with member(kafka_0822, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({topic: 1}, value_decoder=int)[topic]
        assert read(stream, 1)[0].value == 1
        with pytest.raises(DecoderFailed, match=f"{topic}/0 at 1") as raised:
            read(stream, 1)
        assert isinstance(raised.value.__cause__, ValueError)
        assert read(stream, 1)[0].value == 3
        consumer.commit_offsets()
        assert stored(kafka_0822, fresh_group, topic, 0) == b"3"


@pytest.mark.catalogue("G5")
def test_keys_and_values_are_decoded_each_by_its_own_and_null_by_none(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    produce(kafka_0822, topic, 0, [(b"k", b"1"), (None, b"2"), (b"gone", None)])
    with member(kafka_0822, fresh_group) as consumer:
        streams = consumer.create_message_streams({topic: 1}, key_decoder=bytes.decode, value_decoder=int)[topic]
        assert [(message.key, message.value) for message in read(streams, 3)] == [("k", 1), (None, 2), ("gone", None)]
