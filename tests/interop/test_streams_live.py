"""Time-outs, threads and the end of streams, against real brokers: which threads may call what, and what is left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    member,
    owners,
    produce,
    read,
    stored,
    texts,
    wait_stored,
)

from simpleconsumer.types import Message
from zkconsumer import (
    ConcurrentStreamUse,
    ConnectorClosed,
    ConsumerConfig,
    ConsumerConnector,
    ConsumerTimeout,
    KafkaStream,
    RebalanceListener,
    TopicPartition,
)
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import Deadline, wait_until

NEVER_MS = 3_600_000
LONG_MS = 20_000
"""Time-out of streams that are read by a plain loop, which is not to end by it."""


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of one partition."""
    name = fresh_topic()
    kafka_0822.create_topic(name, partitions=1)
    return name


@pytest.fixture
def ten(kafka_0822: KafkaCluster, topic: str) -> str:
    """The topic, with the messages "0" to "9"."""
    produce(kafka_0822, topic, 0, [str(n) for n in range(10)])
    return topic


# -- consumer.timeout.ms -----------------------------------------------------------------------------------------------


@pytest.mark.catalogue("L3")
@pytest.mark.parametrize("timeout_ms", [0, 50])
def test_a_stream_goes_on_after_every_time_out(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str, timeout_ms: int
) -> None:
    with member(kafka_0822, fresh_group, consumer_timeout_ms=timeout_ms) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        for text in ("first", "second"):
            for _ in range(2):
                with pytest.raises(ConsumerTimeout, match=str(timeout_ms)):
                    next(stream)
            sent = produce(kafka_0822, topic, 0, [text])
            assert texts(read(stream, 1)) == sent


def test_without_a_time_out_next_waits_for_the_message_and_for_the_end(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with member(kafka_0822, fresh_group, consumer_timeout_ms=-1) as consumer:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        produce(kafka_0822, topic, 0, ["late"])
        assert texts(reader.wait(1)) == ["late"]
        assert reader.alive == 1
    reader.join()
    assert reader.errors == []


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_second_thread_inside_next_is_refused_and_the_first_is_undisturbed(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    with member(kafka_0822, fresh_group, consumer_timeout_ms=-1) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        reader = BackgroundReader(stream)
        produce(kafka_0822, topic, 0, ["one"])
        reader.wait(1)

        wait_until(lambda: _is_inside(stream), PATIENCE_S, "the reader to wait")
        with pytest.raises(ConcurrentStreamUse, match=consumer.consumer_id):
            next(stream)
        produce(kafka_0822, topic, 0, ["two"])
        assert texts(reader.wait(2)) == ["one", "two"]
        assert reader.errors == []


def _is_inside(stream: KafkaStream) -> bool:
    """True while a thread waits inside next(), which nothing public shows."""
    return bool(stream._inside)


def test_a_stream_may_go_from_thread_to_thread_and_nobody_waits_for_one_that_ended(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    deadline = Deadline(PATIENCE_S)
    with member(kafka_0822, fresh_group, rebalance_drain_timeout_ms=60_000) as consumer:
        [stream] = consumer.create_message_streams({ten: 1})[ten]
        received: list[Message] = []
        for _ in range(5):
            thread = threading.Thread(target=lambda: received.extend(read(stream, 2)))
            thread.start()
            thread.join(PATIENCE_S)
        assert texts(received) == [str(n) for n in range(10)]
    assert stored(kafka_0822, fresh_group, ten, 0) == b"9"  # nobody said that the last one was done
    assert not deadline.expired


# -- shutdown ----------------------------------------------------------------------------------------------------------


def test_shutdown_from_the_loop_over_a_stream_ends_the_loop_and_counts_the_message(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    consumer = member(kafka_0822, fresh_group, consumer_timeout_ms=LONG_MS, auto_commit_interval_ms=NEVER_MS)
    [stream] = consumer.create_message_streams({ten: 1})[ten]
    received = []
    for message in stream:
        received.append(message)
        if len(received) == 3:
            consumer.shutdown()
    assert texts(received) == ["0", "1", "2"]
    assert stored(kafka_0822, fresh_group, ten, 0) == b"3"
    with pytest.raises(StopIteration):
        next(stream)
    with pytest.raises(ConnectorClosed):
        consumer.commit_offsets()
    assert consumer.status().state == "closed"


@pytest.fixture
def on_user_signal() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Installs a function as handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(function: Callable[[], None]) -> None:
        signal.signal(signal.SIGUSR1, lambda number, frame: function())

    yield install
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.catalogue("I4")
def test_shutdown_in_a_signal_handler_ends_a_next_that_waits(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    ten: str,
    on_user_signal: Callable[[Callable[[], None]], None],
) -> None:
    consumer = member(kafka_0822, fresh_group, auto_commit_interval_ms=NEVER_MS, consumer_timeout_ms=-1)
    [stream] = consumer.create_message_streams({ten: 1})[ten]
    on_user_signal(consumer.shutdown)

    def send_when_all_is_read() -> None:
        wait_until(lambda: len(received) == 10 and _is_inside(stream), PATIENCE_S, "the loop to wait")
        os.kill(os.getpid(), signal.SIGUSR1)

    received: list[Message] = []
    sender = threading.Thread(target=send_when_all_is_read)
    sender.start()
    for message in stream:
        received.append(message)  # noqa: PERF402 - the other thread watches it grow
    sender.join(PATIENCE_S)
    assert len(received) == 10
    assert stored(kafka_0822, fresh_group, ten, 0) == b"10"


def test_shutdown_in_a_signal_handler_while_a_message_is_in_hand_counts_it(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    ten: str,
    on_user_signal: Callable[[Callable[[], None]], None],
) -> None:
    consumer = member(kafka_0822, fresh_group, consumer_timeout_ms=LONG_MS, auto_commit_interval_ms=NEVER_MS)
    [stream] = consumer.create_message_streams({ten: 1})[ten]
    on_user_signal(consumer.shutdown)
    received = []
    for message in stream:
        received.append(message)
        if len(received) == 4:
            signal.raise_signal(signal.SIGUSR1)
    assert len(received) == 4
    assert stored(kafka_0822, fresh_group, ten, 0) == b"4"


def test_work_that_fails_after_shutdown_in_a_handler_is_not_committed(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    ten: str,
    on_user_signal: Callable[[Callable[[], None]], None],
) -> None:
    received = []

    def consume() -> None:
        with member(kafka_0822, fresh_group, consumer_timeout_ms=LONG_MS, auto_commit_interval_ms=NEVER_MS) as consumer:
            on_user_signal(consumer.shutdown)
            for message in consumer.create_message_streams({ten: 1})[ten][0]:
                if len(received) == 3:
                    signal.raise_signal(signal.SIGUSR1)
                    raise RuntimeError("the work on the fourth message fails")
                received.append(message)

    with pytest.raises(RuntimeError):
        consume()
    assert stored(kafka_0822, fresh_group, ten, 0) == b"3"
    assert owners(kafka_0822, fresh_group, ten) == {}


def test_a_handler_that_shuts_down_and_exits_leaves_in_order(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    ten: str,
    on_user_signal: Callable[[Callable[[], None]], None],
) -> None:
    consumer = member(kafka_0822, fresh_group, consumer_timeout_ms=LONG_MS, auto_commit_interval_ms=NEVER_MS)
    [stream] = consumer.create_message_streams({ten: 1})[ten]

    def leave_and_exit() -> None:
        consumer.shutdown(timeout=1.0)
        raise SystemExit

    on_user_signal(leave_and_exit)
    next(stream)
    next(stream)
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGUSR1)
    wait_until(lambda: owners(kafka_0822, fresh_group, ten) == {}, PATIENCE_S, "the group to be left")
    consumer.shutdown()
    assert stored(kafka_0822, fresh_group, ten, 0) == b"1"


def test_shutdown_in_a_signal_handler_does_not_wait_for_a_loop_that_was_left(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    ten: str,
    on_user_signal: Callable[[Callable[[], None]], None],
) -> None:
    """The message that a `break` left in hand counts as done at the clean end of the block."""
    with member(kafka_0822, fresh_group, consumer_timeout_ms=LONG_MS, auto_commit_interval_ms=NEVER_MS) as consumer:
        on_user_signal(consumer.shutdown)
        for message in consumer.create_message_streams({ten: 1})[ten][0]:
            if message.offset == 4:
                break
        signal.raise_signal(signal.SIGUSR1)
    assert stored(kafka_0822, fresh_group, ten, 0) == b"5"
    assert owners(kafka_0822, fresh_group, ten) == {}


def test_shutdown_in_a_signal_handler_ends_a_start_that_waits(
    kafka_0822: KafkaCluster,
    fresh_group: str,
    ten: str,
    on_user_signal: Callable[[Callable[[], None]], None],
) -> None:
    """The start waits for the listener, the listener for the end."""
    ended = threading.Event()

    class Waiting(RebalanceListener):
        def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            ended.wait(PATIENCE_S)

    consumer = member(kafka_0822, fresh_group, "a", Waiting(), zookeeper_connection_timeout_ms=60_000)
    on_user_signal(lambda: consumer.shutdown(timeout=0.2))
    deadline = Deadline(PATIENCE_S)
    [stream] = consumer.create_message_streams({ten: 1})[ten]
    assert not deadline.expired
    ended.set()
    assert list(stream) == []
    assert owners(kafka_0822, fresh_group, ten) == {}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_a_loop_repeats_only_the_message_in_hand(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, interruptible: None
) -> None:
    received: list[Message] = []

    def consume() -> None:
        with member(kafka_0822, fresh_group, consumer_timeout_ms=LONG_MS) as consumer:
            for message in consumer.create_message_streams({ten: 1})[ten][0]:
                received.append(message)
                if len(received) == 4:
                    signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert stored(kafka_0822, fresh_group, ten, 0) == b"3"
    with member(kafka_0822, fresh_group) as consumer:
        received += read(consumer.create_message_streams({ten: 1})[ten], 7)
    assert texts(received) == ["0", "1", "2", "3", "3", "4", "5", "6", "7", "8", "9"]


@pytest.mark.parametrize(("finishes", "expected"), [(True, b"4"), (False, b"3")])
def test_shutdown_from_another_thread_waits_for_the_message_in_hand_but_not_for_ever(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, finishes: bool, expected: bytes
) -> None:
    consumer = member(kafka_0822, fresh_group, auto_commit_interval_ms=NEVER_MS)
    holding, let_go = threading.Event(), threading.Event()

    def work(message: Message) -> None:
        if message.offset == 3:
            holding.set()
            let_go.wait(PATIENCE_S)

    reader = BackgroundReader(*consumer.create_message_streams({ten: 1})[ten], handle=work)
    assert holding.wait(PATIENCE_S)
    if finishes:
        threading.Timer(0.2, let_go.set).start()
        consumer.shutdown(timeout=PATIENCE_S)
    else:
        consumer.shutdown(timeout=0.2)
    assert stored(kafka_0822, fresh_group, ten, 0) == expected
    assert consumer.status().state == "closed"
    let_go.set()
    reader.join()
    assert len(reader.messages) == 4
    assert reader.errors == []


@pytest.mark.catalogue("I4")
def test_shutdown_twice_and_from_many_threads_is_one_shutdown(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    consumer = member(kafka_0822, fresh_group)
    reader = BackgroundReader(*consumer.create_message_streams({ten: 1})[ten])
    reader.wait(10)
    threads = [threading.Thread(target=consumer.shutdown) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    consumer.shutdown()
    assert stored(kafka_0822, fresh_group, ten, 0) == b"10"
    assert owners(kafka_0822, fresh_group, ten) == {}


def test_a_connector_that_never_joined_shuts_down_and_creates_no_streams_afterwards(
    kafka_0822: KafkaCluster, fresh_group: str, topic: str
) -> None:
    consumer = member(kafka_0822, fresh_group)
    consumer.shutdown()
    with pytest.raises(ConnectorClosed):
        consumer.create_message_streams({topic: 1})
    assert kafka_0822.client.exists(f"/consumers/{fresh_group}") is None


class ClosingListener(RebalanceListener):
    """Shuts its connector down inside a callback."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.connector: ConsumerConnector | None = None
        self.returned = threading.Event()

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        self._called("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._called("revoked")

    def _called(self, where: str) -> None:
        if where == self.where and self.connector is not None:
            self.connector.shutdown()
            self.returned.set()


@pytest.mark.catalogue("I4")
@pytest.mark.parametrize("where", ["assigned", "revoked"])
def test_shutdown_from_a_listener_ends_the_streams(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, where: str
) -> None:
    listener = ClosingListener(where)
    deadline = Deadline(PATIENCE_S)
    # Creating the streams would wait so long for the end of the start, which does not come.
    consumer = member(kafka_0822, fresh_group, "a", listener, zookeeper_connection_timeout_ms=60_000)
    if where == "assigned":
        listener.connector = consumer
        reader = BackgroundReader(*consumer.create_message_streams({ten: 1})[ten])
    else:
        reader = BackgroundReader(*consumer.create_message_streams({ten: 1})[ten])
        reader.wait(10)
        listener.connector = consumer
        # "0" sorts first: the only partition moves to the newcomer.
        with member(kafka_0822, fresh_group, "0") as other:
            other.create_message_streams({ten: 1})
            assert listener.returned.wait(PATIENCE_S)
    assert listener.returned.wait(PATIENCE_S)
    reader.join()
    assert not deadline.expired
    assert consumer.status().state == "closed"
    assert owners(kafka_0822, fresh_group, ten) == {}


# -- what is left ------------------------------------------------------------------------------------------------------


def open_descriptors() -> int:
    """Files and sockets of this process."""
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.mark.catalogue("I5", "I6", "O")
def test_nothing_is_left_of_fifty_connectors_in_a_row(kafka_0822: KafkaCluster, fresh_group: str, ten: str) -> None:
    def consume_one() -> None:
        with member(kafka_0822, fresh_group, auto_commit_enable=False) as consumer:
            read(consumer.create_message_streams({ten: 1})[ten], 1)

    consume_one()
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    for _ in range(50):
        consume_one()
    wait_until(
        lambda: set(threading.enumerate()) <= threads, PATIENCE_S, "the threads to end", state=threading.enumerate
    )
    wait_until(
        lambda: open_descriptors() <= descriptors, PATIENCE_S, f"{descriptors} descriptors", state=open_descriptors
    )
    assert kafka_0822.client.get_children(f"/consumers/{fresh_group}/ids") == []
    assert owners(kafka_0822, fresh_group, ten) == {}


@pytest.mark.catalogue("I1")
@pytest.mark.parametrize("fault", ["stall", "cut"])
def test_shutdown_returns_although_zookeeper_does_not_answer(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str, fault: str
) -> None:
    with TcpProxy(kafka_0822.zookeeper_hosts) as proxy:
        config = ConsumerConfig(
            proxy.address, fresh_group, auto_offset_reset="smallest", zookeeper_session_timeout_ms=2000,
        )  # fmt: skip
        consumer = ConsumerConnector(config)
        reader = BackgroundReader(*consumer.create_message_streams({ten: 1})[ten])
        reader.wait(10)
        threads = [thread for thread in threading.enumerate() if fresh_group in thread.name]
        assert threads
        getattr(proxy, fault)()
        deadline = Deadline(PATIENCE_S)
        consumer.shutdown(timeout=1)
        assert not deadline.expired
        reader.join()
        wait_until(
            lambda: not any(thread.is_alive() for thread in threads),
            PATIENCE_S,
            "the threads to end",
            state=threading.enumerate,
        )


@pytest.mark.catalogue("I1")
def test_shutdown_returns_although_a_broker_does_not_answer(
    kafka_0822: KafkaCluster, fresh_group: str, ten: str
) -> None:
    """A fetch that the broker holds back for long must not hold back the end."""
    consumer = member(kafka_0822, fresh_group, fetch_min_bytes=10_000_000, fetch_wait_max_ms=25_000)
    consumer.create_message_streams({ten: 1})
    wait_stored(kafka_0822, fresh_group, ten, 0, 0)
    fetchers = [thread for thread in threading.enumerate() if thread.name.startswith(f"fetcher-{fresh_group}")]
    deadline = Deadline(15)
    consumer.shutdown()
    assert not deadline.expired
    assert not any(thread.is_alive() for thread in fetchers)
