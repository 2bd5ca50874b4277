"""`Producer.send_batch`, `Producer.bulk`, and what a producer says about batches that may be stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simpleconsumer.errors import BrokerError, ConnectionFailed
from tests.producer.test_producer import WAIT_S, everything, producer, stored
from zkconsumer.producer.batching.outcome import SentMessage
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


def test_a_batch_is_where_its_future_says(embedded: EmbeddedCluster, topic: str) -> None:
    with producer(embedded, producer_type="async") as made:
        first = made.send_batch(topic, [(None, b"a"), (b"k", b"b")], 1)
        second = made.send_batch(topic, [(b"k", None)], 1)
        assert first.result(WAIT_S) == [SentMessage(topic, 1, 0), SentMessage(topic, 1, 1)]
        assert second.result(WAIT_S) == [SentMessage(topic, 1, 2)]
        with pytest.raises(ValueError, match=rf"topic '{topic}' has no partition 7"):
            made.send_batch(topic, [(None, b"a")], 7)
        with pytest.raises(ValueError, match=r"a batch for .* has no messages"):
            made.send_batch(topic, [], 1)
        with pytest.raises(OversizedMessage):
            made.send_batch(topic, [(None, b"a"), (None, b"x" * 1_000_001)], 1)
    assert stored(embedded, topic, 1) == [(None, b"a"), (b"k", b"b"), (b"k", None)]


def test_messages_without_a_key_are_spread_and_failures_are_named(embedded: EmbeddedCluster, topic: str) -> None:
    with producer(embedded, producer_type="async", batch_num_messages=3) as made:
        bulk = made.bulk(spreads=True)
        for number in range(1, 9):
            bulk.add(number, topic, b"%d" % number)
        bulk.add(9, topic, b"x" * 1_000_001)
        bulk.add(10, topic, b"keyed", b"k", partition=0)
        bulk.fail(11, ValueError("no message"))
        bulk.flush()

        def is_counted() -> bool:
            bulk.count_finished()
            return bulk.sent == 9

        wait_until(is_counted, WAIT_S, "nine messages")
        found = bulk.finish()
    assert (found.sent, found.failed, [number for number, _ in found.failures]) == (9, 2, [9, 11])
    by_partition = [[value for _, value in stored(embedded, topic, number)] for number in (0, 1)]
    assert [value for value in by_partition[0] if value != b"keyed"] in ([b"1", b"3", b"5", b"7"],
                                                                         [b"2", b"4", b"6", b"8"])  # fmt: skip
    assert len(by_partition[1]) == 4


def test_a_partition_without_leader_has_no_turn(fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(2) as cluster:
        topic = fresh_topic()
        cluster.create_topic(topic, 2)
        with producer(cluster, producer_type="async", message_send_max_retries=20) as made:
            cluster.kill(1, expire=True)
            bulk = made.bulk(spreads=True)
            for number in range(20):
                bulk.add(number, topic, b"%d" % number)
            assert bulk.finish().sent == 20
        assert [value for _, value in stored(cluster, topic, 0)] == [b"%d" % number for number in range(20)]


def test_a_batch_that_may_be_stored_is_not_sent_again_if_that_is_not_wanted(
    embedded: EmbeddedCluster, topic: str
) -> None:
    embedded.faults.add(Fault.error(6, api="produce", topic=topic), times=2)
    settings = {"retry_unanswered_batches": False, "message_send_max_retries": 20}
    with producer(embedded, **settings) as made:
        assert made.send(topic, b"refused twice", partition=0).result(0).offset == 0
        embedded.faults.add(Fault.wrong_correlation_id(api="produce", topic=topic), times=1)
        with pytest.raises(MessageNotSent, match="it may be stored nevertheless") as caught:
            made.send(topic, b"once at most", partition=0)
        assert caught.value.tries == 1
        assert made.repeated == 0
    assert everything(embedded, topic).count(b"once at most") <= 1


def test_what_is_sent_again_after_a_lost_answer_is_counted(embedded: EmbeddedCluster, topic: str) -> None:
    embedded.faults.add(Fault.wrong_correlation_id(api="produce", topic=topic), times=2)
    with producer(embedded) as made:
        made.send_batch(topic, [(None, b"a"), (None, b"b")], 0).result(WAIT_S)
        assert made.repeated == 4


def test_errors_carry_their_cause_and_a_refused_connection_stores_nothing(fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(2) as cluster:
        topic = fresh_topic()
        cluster.create_topic(topic, 2)
        with producer(cluster, message_send_max_retries=0) as made:
            cluster.faults.add(Fault.error(6, api="produce", topic=topic), times=1)
            with pytest.raises(MessageNotSent) as refused:
                made.send(topic, b"a", partition=1)
            assert isinstance(refused.value.__cause__, BrokerError)
            made.send(topic, b"b", partition=1)
            cluster.kill(1)
            with pytest.raises(MessageNotSent):
                made.send(topic, b"c", partition=1)  # over the connection that the broker had closed
            with pytest.raises(MessageNotSent) as lost:
                made.send(topic, b"d", partition=1)
            assert isinstance(lost.value.__cause__, ConnectionFailed)
            assert not lost.value.may_be_stored
