"""Fetch sessions of embedded brokers: by themselves, and with clients that have some."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from broker_wire import Wire
from session_dance import SessionClient

from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.embedded.kafka011.broker import Broker011
from zkconsumer.testing.embedded.kafka011.fetch_sessions import FetchSessions, Position, Seen
from zkconsumer.testing.waiting import Deadline

PATIENCE_S = 30.0
HERE, THERE = ("t", 0), ("t", 1)
NAMED = {HERE: Position(0, 100), THERE: Position(0, 100)}
QUIET = Seen(0, 5, 0, 0)


def begun(sessions: FetchSessions, now_s: float = 0.0) -> int:
    """The number of a new session with two partitions, of which nothing came."""
    context = sessions.begin(0, 0, NAMED, (), now_s)
    number, reported = sessions.finish(context, {HERE: QUIET, THERE: QUIET}, now_s)
    assert reported == {HERE, THERE}
    return number


class TestSessions:
    def test_answers_have_what_is_new(self) -> None:
        sessions = FetchSessions(10, 1000)
        number = begun(sessions)
        reported = []
        for epoch, seen in enumerate(
            [QUIET, Seen(0, 5, 0, 9), Seen(0, 6, 0, 0), Seen(0, 6, 2, 0), Seen(6, -1, -1, 0), Seen(0, 6, 2, 0)], 1
        ):
            context = sessions.begin(number, epoch, {}, (), 0)
            reported.append(THERE in sessions.finish(context, {HERE: QUIET, THERE: seen}, 0)[1])
        assert reported == [False, True, True, True, True, True]

    def test_a_partition_with_messages_is_the_last_one_next_time(self) -> None:
        sessions = FetchSessions(10, 1000)
        number = begun(sessions)
        context = sessions.begin(number, 1, {}, (), 0)
        sessions.finish(context, {HERE: Seen(0, 5, 0, 9), THERE: QUIET}, 0)
        assert list(sessions.begin(number, 2, {}, (), 0).positions) == [THERE, HERE]

    def test_epochs_begin_again_with_1(self) -> None:
        sessions = FetchSessions(10, 1000)
        number = begun(sessions)
        context = sessions.begin(number, 1, {}, (), 0)
        assert context.session is not None
        context.session.epoch = 0x7FFFFFFF
        assert sessions.begin(number, 0x7FFFFFFF, {}, (), 0).code == 0
        assert sessions.begin(number, 1, {}, (), 0).code == 0
        assert sessions.begin(number, 3, {}, (), 0).code == 71

    def test_without_room_there_is_no_session_until_one_is_old(self) -> None:
        sessions = FetchSessions(1, 1000)
        first = begun(sessions)
        assert begun(sessions, 0.9) == 0
        second = begun(sessions, 1.1)
        assert second not in (0, first)
        assert sessions.begin(first, 1, {}, (), 1.1).code == 70
        assert begun(FetchSessions(0, 1000), 5.0) == 0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(generation="2.8", zookeeper=False) as running:
        yield running


def sessions_of(cluster: EmbeddedCluster) -> FetchSessions:
    broker = cluster.brokers[0]
    assert isinstance(broker, Broker011)
    return broker.fetch_sessions


def test_a_broker_that_was_restarted_knows_no_session(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t")
    with Wire(cluster.port(0)) as wire:
        session = SessionClient(wire, "t").fetch(0, 0, {0: 0}).session
    cluster.stop(0)
    cluster.start(0)
    with Wire(cluster.port(0)) as wire:
        assert SessionClient(wire, "t").fetch(session, 1)[0] == 70


class TestKafkaPython:
    @pytest.fixture
    def consumer(self, cluster: EmbeddedCluster) -> Iterator[tuple[Any, str]]:
        kafka = pytest.importorskip("kafka", reason="kafka-python is not installed: pip install kafka-python")
        topic = f"sessions-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(topic, 3)
        made = kafka.KafkaConsumer(
            bootstrap_servers=cluster.broker_list, group_id=None, auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        made.assign([kafka.TopicPartition(topic, partition) for partition in range(3)])
        yield made, topic
        made.close()

    def poll(self, consumer: Any, count: int) -> list[bytes]:
        deadline, found = Deadline(PATIENCE_S), []
        while len(found) < count and not deadline.expired:
            for records in consumer.poll(timeout_ms=200).values():
                found += [record.value for record in records]
        return sorted(found)

    def test_it_reads_on_in_its_session_and_after_it_was_lost(
        self, cluster: EmbeddedCluster, consumer: tuple[Any, str]
    ) -> None:
        reader, topic = consumer
        for number in range(6):
            cluster.produce(topic, [b"%d" % number], partition=number % 3)
            if number == 3:
                sessions_of(cluster).clear()
            assert self.poll(reader, 1) == [b"%d" % number]

    @pytest.mark.parametrize(
        "fault", [Fault.error(6, api="fetch"), Fault.close(api="fetch"), Fault.close(api="fetch", after_bytes=30)],
        ids=lambda fault: f"{fault.kind} {fault.code or fault.count_bytes}",
    )  # fmt: skip
    def test_faults_within_a_session_cost_nothing(
        self, cluster: EmbeddedCluster, consumer: tuple[Any, str], fault: Fault
    ) -> None:
        reader, topic = consumer
        cluster.produce(topic, [b"first"], partition=0)
        assert self.poll(reader, 1) == [b"first"]
        cluster.faults.add(fault, times=3)
        cluster.produce(topic, [b"second"], partition=1)
        assert self.poll(reader, 1) == [b"second"]
        cluster.faults.wait_used(fault, 1, PATIENCE_S)

    def test_an_answer_within_a_session_is_cut_where_the_fault_wants_it(
        self, cluster: EmbeddedCluster, consumer: tuple[Any, str]
    ) -> None:
        reader, topic = consumer
        cluster.produce(topic, [b"first"], partition=0)
        assert self.poll(reader, 1) == [b"first"]
        cluster.faults.add(Fault.cut_tail(5, topic, 2), times=None)
        cluster.produce(topic, [b"second"], partition=2)
        with pytest.raises(Exception, match=f"topic='{topic}', partition=2.*no complete records"):
            self.poll(reader, 1)
        cluster.faults.clear()
        assert self.poll(reader, 1) == [b"second"]
