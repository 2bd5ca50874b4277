"""Transactions whose coordinator does not answer: nothing is lost or half committed, and what is unknown is said."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer import Producer, TransactionFailed
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.proxy.kafka_frames import Exchange, RawReply
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
WAIT_S = 60.0
ADD_PARTITIONS, END = 24, 26
ALONE = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}  # fmt: skip


class Swallower:
    """Lets the requests through a proxy, and drops the answers to some of them.

    Attributes:
        apis: Whose answers are dropped.
        dropped: How many were.
    """

    def __init__(self) -> None:
        self.apis: set[int] = set()
        self.dropped = 0

    def __call__(self, exchange: Exchange) -> bytes | None:
        if exchange.api not in self.apis:
            return None
        self.dropped += 1
        return RawReply(b"")


class Place:
    """A broker behind a proxy."""

    def __init__(self, cluster: KafkaCluster, proxy: TcpProxy, swallower: Swallower) -> None:
        self.cluster, self.proxy, self.swallower = cluster, proxy, swallower

    def producer(self, name: str, **settings: Any) -> Producer:
        given = {"request_required_acks": -1, "producer_type": "async", "queue_buffering_max_ms": 1,
                 "request_timeout_ms": 500, "transactional_id": name, **settings}  # fmt: skip
        made = Producer(ProducerConfig(metadata_broker_list=self.proxy.address, **given))
        made.init_transactions()
        return made

    def committed(self, topic: str, count: int) -> list[bytes | None]:
        """Wait until so many messages can be read with `read_committed`: markers are written behind the answer."""

        def found() -> list[bytes | None]:
            values = self.read(topic)
            return values if len(values) >= count else []

        return wait_until(found, WAIT_S, f"{count} messages of {topic}")

    def read(self, topic: str) -> list[bytes | None]:
        port = self.cluster.brokers[0].port
        with SimpleConsumer("127.0.0.1", port, dialect=KAFKA011, read_committed=True) as consumer:
            return [message.value for message in consumer.fetch(topic, 0, 0)]


@pytest.fixture(scope="module", params=["4.3.1", *(pytest.param(each, marks=SLOW) for each in ("1.1.1", "3.9.2"))])
def running(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        cluster = KafkaCluster(request.param, settings=ALONE)
        swallower = Swallower()
        proxy = stack.enter_context(TcpProxy(("127.0.0.1", cluster.brokers[0].port), rewrite=swallower))
        cluster.advertise(0, proxy.port)
        stack.enter_context(cluster)
        yield Place(cluster, proxy, swallower)


@pytest.fixture
def place(running: Place) -> Iterator[Place]:
    yield running
    running.swallower.apis.clear()


def test_a_commit_without_an_answer_says_so_and_can_be_repeated(place: Place) -> None:
    place.cluster.create_topic("unanswered")
    with place.producer("unanswered") as made:
        made.begin_transaction()
        made.send("unanswered", b"a", partition=0)
        place.swallower.apis = {END}
        with pytest.raises(TransactionFailed, match="whether it is committed is not known: commit again") as failed:
            made.commit_transaction(timeout_s=2.0)
        assert failed.value.outcome_is_unknown
        assert place.swallower.dropped
        send = partial(made.send, "unanswered", b"b", partition=0)
        for call in (made.abort_transaction, made.begin_transaction, send):
            with pytest.raises(TransactionFailed, match="the outcome of its commit is not known: commit again"):
                call()
        place.swallower.apis = set()
        made.commit_transaction()
        with made.transaction():
            made.send("unanswered", b"c", partition=0)
    assert place.committed("unanswered", 2) == [b"a", b"c"]


def test_a_block_whose_commit_is_not_answered_is_not_aborted(place: Place) -> None:
    place.cluster.create_topic("block")
    with place.producer("block") as made:

        def send_and_go_silent() -> None:
            made.send("block", b"a", partition=0)
            place.swallower.apis = {END}

        with pytest.raises(TransactionFailed) as failed, made.transaction(timeout_s=1.5):
            send_and_go_silent()
        assert failed.value.outcome_is_unknown
        place.swallower.apis = set()
        made.commit_transaction()
    assert place.committed("block", 1) == [b"a"]


def test_an_answer_that_is_lost_once_is_asked_for_again(place: Place) -> None:
    place.cluster.create_topic("lost-once")
    with place.producer("lost-once") as made:
        made.begin_transaction()
        made.send("lost-once", b"a", partition=0).result(WAIT_S)
        place.swallower.apis, place.swallower.dropped = {END}, 0

        def let_through() -> None:
            wait_until(lambda: place.swallower.dropped, WAIT_S, "a lost answer")
            place.swallower.apis = set()

        helper = threading.Thread(target=let_through)
        helper.start()
        made.commit_transaction()
        helper.join(WAIT_S)
    assert place.committed("lost-once", 1) == [b"a"]


def test_an_abort_without_an_answer_can_be_repeated_and_nothing_of_it_is_read(place: Place) -> None:
    place.cluster.create_topic("abort")
    with place.producer("abort") as made:
        made.begin_transaction()
        made.send("abort", b"a", partition=0).result(WAIT_S)
        place.swallower.apis = {END}
        with pytest.raises(TransactionFailed, match="does not answer in time"):
            made.abort_transaction(timeout_s=1.5)
        with pytest.raises(TransactionFailed, match="abort again"):
            made.commit_transaction()
        place.swallower.apis = set()
        made.abort_transaction()
        with made.transaction():
            made.send("abort", b"b", partition=0)
    assert place.committed("abort", 1) == [b"b"]


def test_a_partition_that_may_have_been_added_is_taken_out_again_by_an_abort(place: Place) -> None:
    """Else its coordinator would end the transaction after its time, and fence the producer."""
    place.cluster.create_topic("added")
    lifetime_s = 3.0
    with place.producer("added", transaction_timeout_ms=int(lifetime_s * 1000)) as made:
        made.begin_transaction()
        place.swallower.apis = {ADD_PARTITIONS}
        with pytest.raises(TransactionFailed, match="does not answer in time"):
            made.send("added", b"a", partition=0)
        place.swallower.apis = set()
        with pytest.raises(TransactionFailed, match="abort it"):
            made.commit_transaction()
        made.abort_transaction()
        count, until = 0, time.monotonic() + 2 * lifetime_s
        while time.monotonic() < until:
            with made.transaction():
                made.send("added", b"%d" % count, partition=0)
            count += 1
    assert place.committed("added", count) == [b"%d" % number for number in range(count)]


def connections_of_this_process(port: int) -> int:
    """How many connections to a port this process has open; the broker has some of its own, for markers."""
    mine = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            mine.add(str(descriptor.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[2].rpartition(":")[2], 16) == port and f"socket:[{row[9]}]" in mine for row in rows)


def test_the_coordinator_is_asked_over_one_connection(place: Place) -> None:
    place.cluster.create_topic("connections")
    with place.producer("connections") as made:
        transactions, _ = made._transactional()
        for number in range(5):
            with made.transaction():
                made.send("connections", b"%d" % number, partition=0)
            assert connections_of_this_process(place.proxy.port) == 2, "one for messages, one for the coordinator"
            connection = transactions._coordinator._connection
            assert connection is not None
            assert connection.connects == 1
        place.proxy.drop()
        with made.transaction():
            made.send("connections", b"5", partition=0)
        assert connections_of_this_process(place.proxy.port) == 2
    wait_until(lambda: not connections_of_this_process(place.proxy.port), WAIT_S, "both to be closed")


def test_a_commit_that_waits_ends_with_the_producer(place: Place) -> None:
    place.cluster.create_topic("closing")
    made = place.producer("closing", request_timeout_ms=30_000)
    made.begin_transaction()
    made.send("closing", b"a", partition=0).result(WAIT_S)
    place.swallower.apis, place.swallower.dropped = {END}, 0
    failures: list[Exception] = []

    def commit() -> None:
        try:
            made.commit_transaction()
        except TransactionFailed as error:
            failures.append(error)

    committing = threading.Thread(target=commit)
    committing.start()
    wait_until(lambda: place.swallower.dropped, WAIT_S, "the commit to be sent")
    started_at = time.monotonic()
    made.close()
    committing.join(WAIT_S)
    assert time.monotonic() - started_at < WAIT_S / 2
    assert "the producer is closed; whether it is committed is not known" in str(failures[0])
