"""`shutdown(timeout)` keeps its time whatever hangs, reports what was not stored, and raises nothing.

How long it takes to the tenth of a second is looked at in virtual time (`tests/simulation`) and in
`tests/member/test_leaving.py`; here a session lasts a minute, and a shutdown that waits for it is found out.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from consuming import (
    COUNT,
    PATIENCE_S,
    BackgroundReader,
    member,
    owners,
    preset_offset,
    produce,
    stored,
    wait_owners,
    wait_stored,
)

from rebalance.lease import lease_clock
from zkconsumer import (
    CommitFailed,
    ConnectorClosed,
    ConsumerConfig,
    ConsumerConnector,
    Message,
    RebalanceListener,
    StreamFailed,
    TopicPartition,
)
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import Deadline, wait_until

SESSION_MS = 60_000
SOON_S = 20.0
"""Much longer than any shutdown of these tests may take, and much shorter than a session."""
NEVER_MS = 3_600_000


@pytest.fixture
def link(embedded_cluster: EmbeddedCluster) -> Iterator[TcpProxy]:
    """A way to ZooKeeper that can fail."""
    with TcpProxy(embedded_cluster.zookeeper_hosts, count_zookeeper=True) as proxy:
        yield proxy


def behind(
    link: TcpProxy, cluster: EmbeddedCluster, group: str, listener: object | None = None, **settings: Any
) -> ConsumerConnector:
    """A member that goes to ZooKeeper by a link, with a session that is longer than any test."""
    connect = cluster.zookeeper_connect.replace(cluster.zookeeper_hosts, link.address)
    values: dict[str, Any] = {
        "auto_offset_reset": "smallest", "auto_commit_interval_ms": NEVER_MS, "consumer_timeout_ms": 100,
        "zookeeper_session_timeout_ms": SESSION_MS, **settings,
    }  # fmt: skip
    return ConsumerConnector(ConsumerConfig(connect, group, **values), listener)


def both(topic: str) -> set[TopicPartition]:
    return {TopicPartition(topic, 0), TopicPartition(topic, 1)}


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------

FAULTS: dict[str, Callable[[TcpProxy], object]] = {
    "stalled": lambda link: link.stall(),
    "answers lost": lambda link: link.half("up"),
    "gone": lambda link: link.cut(),
    "dead in the middle": lambda link: link.add_listener(lambda request: request.kind == "check" and link.stall()),
    "no goodbye": lambda link: link.add_listener(lambda request: request.kind == "close" and link.stall()),
}


@pytest.mark.catalogue("I1", "I9")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("timeout_s", [0, 1])
def test_without_zookeeper_a_shutdown_keeps_its_time_and_tells_what_was_not_stored(
    embedded_cluster: EmbeddedCluster,
    fresh_group: str,
    topic: str,
    link: TcpProxy,
    fault: str,
    timeout_s: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = behind(link, embedded_cluster, fresh_group)
    reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
    for partition in (0, 1):
        wait_stored(embedded_cluster, fresh_group, topic, partition, 0)
    reader.wait(2 * COUNT)
    FAULTS[fault](link)
    deadline = Deadline(SOON_S)
    unstored = consumer.shutdown(timeout_s)
    assert not deadline.expired
    reader.join()
    assert consumer.status().state == "closed"
    if fault == "no goodbye":
        assert unstored == {}
        assert stored(embedded_cluster, fresh_group, topic, 0) == b"%d" % COUNT
        return
    assert unstored.keys() == both(topic)
    assert all("no answer from ZooKeeper" in reason for reason in unstored.values())
    assert "the positions of 2 partitions are not committed" in caplog.text
    assert consumer.shutdown() == unstored


def test_a_higher_offset_that_the_log_never_had_does_not_count_as_stored(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, link: TcpProxy
) -> None:
    """Like that of a topic that was created again: a member that started there would skip what this one has left."""
    preset_offset(embedded_cluster, fresh_group, topic, 0, b"%d" % (COUNT + 1000))
    consumer = behind(link, embedded_cluster, fresh_group)
    reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
    reader.wait(2 * COUNT)
    link.stall()
    assert consumer.shutdown(1).keys() == both(topic)


def test_an_unanswered_commit_that_goes_back_is_told_although_more_is_stored(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, link: TcpProxy
) -> None:
    class GoesBack(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            with pytest.raises(CommitFailed):
                consumer.commit_offsets({TopicPartition(topic, 0): 3})

    consumer = behind(link, embedded_cluster, fresh_group, GoesBack(), auto_commit_enable=False)
    reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
    reader.wait(2 * COUNT)
    consumer.commit_offsets({TopicPartition(topic, 0): 5})
    link.stall()
    assert consumer.shutdown(1).keys() == {TopicPartition(topic, 0)}


def test_a_shutdown_during_a_start_without_zookeeper_keeps_its_time(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, link: TcpProxy
) -> None:
    link.stall()
    consumer = behind(link, embedded_cluster, fresh_group, zookeeper_connection_timeout_ms=SESSION_MS)
    raised: list[Exception] = []

    def start() -> None:
        try:
            consumer.create_message_streams({topic: 1})
        except ConnectorClosed as error:
            raised.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    wait_until(lambda: link.connections, PATIENCE_S, "the start to be under way")
    deadline = Deadline(SOON_S)
    assert consumer.shutdown(0.2) == {}
    starting.join(SOON_S)
    assert not deadline.expired
    assert raised


def test_positions_that_the_application_commits_itself_are_told_when_their_commit_is_unanswered(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, link: TcpProxy
) -> None:
    class Commits(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            with pytest.raises(CommitFailed):
                consumer.commit_offsets({TopicPartition(topic, 1): 7})
            raised.set()

    raised = threading.Event()
    consumer = behind(link, embedded_cluster, fresh_group, Commits(), auto_commit_enable=False)
    reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
    reader.wait(2 * COUNT)
    consumer.commit_offsets({TopicPartition(topic, 0): 5})
    link.stall()
    deadline = Deadline(SOON_S)
    assert consumer.shutdown(1).keys() == {TopicPartition(topic, 1)}
    assert raised.wait(SOON_S)  # nobody is left who could answer
    assert not deadline.expired


def test_what_is_done_is_stored_while_a_message_in_hand_takes_all_the_time(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, link: TcpProxy
) -> None:
    """Behind the message in hand there may be no time left for a commit of thousands of partitions."""
    holding, let_go = threading.Event(), threading.Event()

    def work(message: Message) -> None:
        if message.partition == 1 and message.offset == 3:
            holding.set()
            let_go.wait(PATIENCE_S)

    consumer = behind(link, embedded_cluster, fresh_group)
    reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic], handle=work)
    assert holding.wait(PATIENCE_S)
    leaving = threading.Thread(target=consumer.shutdown, args=[3])
    leaving.start()
    wait_stored(embedded_cluster, fresh_group, topic, 1, 3)
    assert leaving.is_alive()
    let_go.set()
    leaving.join(PATIENCE_S)
    reader.join()
    wait_stored(embedded_cluster, fresh_group, topic, 1, 4)


def test_the_exception_of_a_block_survives_an_end_without_zookeeper(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, link: TcpProxy
) -> None:
    def consume() -> None:
        with behind(link, embedded_cluster, fresh_group) as consumer:
            [stream] = consumer.create_message_streams({topic: 1})[topic]
            BackgroundReader(stream).wait(2 * COUNT)
            link.stall()
            raise ZeroDivisionError("of the block")

    deadline = Deadline(SOON_S)
    with pytest.raises(ZeroDivisionError, match="of the block"):
        consume()
    assert not deadline.expired


def test_steps_that_fail_are_passed_over(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> None:
    """A fault inside of the leave itself: the rest is done all the same, and the block's own exception survives."""

    left_out: list[Callable[[], object]] = []

    def boom(*_: object) -> None:
        raise RuntimeError("made up")

    def consume() -> None:
        with member(embedded_cluster, fresh_group, zookeeper_session_timeout_ms=SESSION_MS) as consumer:
            consumer.create_message_streams({topic: 1})
            wait_owners(embedded_cluster, fresh_group, topic, dict.fromkeys((0, 1), f"{consumer.consumer_id}-0"))
            assert consumer._member is not None
            delivery = consumer._member.delivery
            left_out.extend([partial(delivery.stop, None, lease_clock()), partial(delivery.close, lease_clock() + 5)])
            delivery.stop = boom  # type: ignore[method-assign,assignment]
            delivery.close = boom  # type: ignore[method-assign]
            raise ZeroDivisionError("of the block")

    with pytest.raises(ZeroDivisionError, match="of the block"):
        consume()
    wait_owners(embedded_cluster, fresh_group, topic, {})
    for step in left_out:  # or its threads would stay
        step()


# -- callbacks ---------------------------------------------------------------------------------------------------------


class Hanging(RebalanceListener):
    """Hangs in one of its callbacks until the test is over."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.inside, self.let_go = threading.Event(), threading.Event()

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self._called("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._called("revoked")

    def _called(self, where: str) -> None:
        if where == self.where:
            self.inside.set()
            self.let_go.wait(PATIENCE_S)


@pytest.mark.catalogue("I1")
@pytest.mark.parametrize("where", ["assigned", "revoked"])
def test_a_callback_that_hangs_costs_the_time_out_and_no_position(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, where: str
) -> None:
    listener = Hanging(where)
    consumer = member(embedded_cluster, fresh_group, "a", listener, auto_commit_interval_ms=NEVER_MS,
                      zookeeper_connection_timeout_ms=3000)  # fmt: skip
    try:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        if where == "revoked":
            reader.wait(2 * COUNT)
        deadline = Deadline(SOON_S)
        assert consumer.shutdown(0.5) == {}
        assert not deadline.expired
        assert listener.inside.is_set()
        wait_owners(embedded_cluster, fresh_group, topic, {})
        if where == "revoked":
            assert stored(embedded_cluster, fresh_group, topic, 0) == b"%d" % COUNT
    finally:
        listener.let_go.set()


@pytest.mark.catalogue("I4")
def test_shutdown_in_on_partitions_revoked_while_another_thread_shuts_down_does_not_wait(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    """The one that leaves waits for the callback."""
    answers: list[dict[TopicPartition, str]] = []

    class Closing(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            answers.append(consumer.shutdown(120))
            consumer.commit_offsets({TopicPartition(topic, 0): 7})

    consumer = member(embedded_cluster, fresh_group, "a", Closing(), auto_commit_enable=False)
    BackgroundReader(*consumer.create_message_streams({topic: 1})[topic]).wait(2 * COUNT)
    deadline = Deadline(SOON_S)
    assert consumer.shutdown(60) == {}
    assert not deadline.expired
    assert len(answers) == 1
    assert stored(embedded_cluster, fresh_group, topic, 0) == b"7"


def test_statistics_that_shut_down_while_another_thread_does(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    config = member(embedded_cluster, fresh_group).config.to_properties() | {"statistics.interval.ms": "5"}
    inside = threading.Event()

    def told(_: object) -> None:
        if wants.is_set():
            inside.set()
            consumer.shutdown(120)

    wants = threading.Event()
    consumer = ConsumerConnector(ConsumerConfig.from_properties(config), on_statistics=told)
    consumer.create_message_streams({topic: 1})
    wants.set()
    assert inside.wait(PATIENCE_S)
    deadline = Deadline(SOON_S)
    assert consumer.shutdown(60) == {}
    assert not deadline.expired


# -- who calls ---------------------------------------------------------------------------------------------------------

PROGRAM = """
    import os, signal, sys
    from zkconsumer import ConsumerConfig, ConsumerConnector

    connect, group, topic = sys.argv[1:]
    settings = {"auto_offset_reset": "smallest", "consumer_timeout_ms": 10_000, "auto_commit_interval_ms": 3_600_000}
    consumer = ConsumerConnector(ConsumerConfig(connect, group, **settings))

    def leave(number, frame):
        consumer.shutdown(120)
        sys.exit(7)

    signal.signal(signal.SIGUSR1, leave)
    [stream] = consumer.create_message_streams({topic: 1})[topic]
    for message in stream:
        if message.offset == 5:
            os.kill(os.getpid(), signal.SIGUSR1)
"""


@pytest.mark.catalogue("I4")
def test_a_handler_that_shuts_down_and_exits_does_not_wait_for_the_message_that_it_interrupted(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    """The program waits for the leave, and the leave must not wait for work that the program has given up."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    produce(embedded_cluster, topic, 0, [str(n) for n in range(10)])
    arguments = [embedded_cluster.zookeeper_connect, fresh_group, topic]
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments], timeout=60, check=False)
    assert ended.returncode == 7
    assert stored(embedded_cluster, fresh_group, topic, 0) == b"5"
    assert owners(embedded_cluster, fresh_group, topic) == {}


def test_a_handler_that_exits_in_the_middle_of_a_shutdown_does_not_stop_it(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    """SystemExit leaves the call; the group is left all the same."""
    told, go_on = threading.Event(), threading.Event()

    class Slow(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            told.set()
            os.kill(os.getpid(), signal.SIGUSR1)
            go_on.wait(PATIENCE_S)

    def leave(*_: object) -> None:
        nested.append(consumer.shutdown(0))
        raise SystemExit

    nested: list[dict[TopicPartition, str]] = []
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        consumer = member(embedded_cluster, fresh_group, "a", Slow(), auto_commit_interval_ms=NEVER_MS,
                          zookeeper_session_timeout_ms=SESSION_MS)  # fmt: skip
        BackgroundReader(*consumer.create_message_streams({topic: 1})[topic]).wait(2 * COUNT)
        with pytest.raises(SystemExit):
            consumer.shutdown(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert nested
    assert set(nested[0]) <= both(topic)
    go_on.set()
    wait_owners(embedded_cluster, fresh_group, topic, {})
    assert consumer.shutdown(30) == {}
    assert stored(embedded_cluster, fresh_group, topic, 0) == b"%d" % COUNT


def test_a_time_out_that_is_none_is_refused_and_one_without_end_is_taken(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    consumer = member(embedded_cluster, fresh_group)
    consumer.create_message_streams({topic: 1})
    with pytest.raises(TypeError, match="timeout is '5'"):
        consumer.shutdown("5")  # type: ignore[arg-type]
    assert consumer.shutdown(float("inf")) == {}


def test_a_stream_that_failed_leaves_in_time(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> None:
    """The block ends by the very error that its stream raised."""

    def consume() -> None:
        with member(embedded_cluster, fresh_group, zookeeper_session_timeout_ms=SESSION_MS) as consumer:
            [stream] = consumer.create_message_streams({topic: 1})[topic]
            assert consumer._member is not None
            consumer._member.loop.post(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
            while True:
                next(stream, None)

    with pytest.raises(StreamFailed, match="ZeroDivisionError"):
        consume()
    wait_owners(embedded_cluster, fresh_group, topic, {})
