"""What callers, callbacks and encoders do wrong, and that a producer neither hangs nor loses a message for it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import Broker
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.outcome import BatchOutcome, SendFuture
from zkconsumer.producer.errors import MessageNotSent, MessagesNotSent, ProducerClosed, QueueFull
from zkconsumer.producer.handlers import CallbackHandler, QueueItem
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.sending import FoundCluster
from zkconsumer.producer.sending.topic_lookup import FoundTopic
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

WAIT_S = 20.0


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, zookeeper=False) as made:
        yield made


@pytest.fixture
def cluster(shared: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    shared.faults.reset()
    yield shared
    shared.faults.reset()


@pytest.fixture
def topic(cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name, 1)
    return name


def config(cluster: EmbeddedCluster, **settings: Any) -> ProducerConfig:
    quick = {"producer_type": "async", "queue_buffering_max_ms": 5, "retry_backoff_ms": 20, **settings}
    return ProducerConfig(metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", **quick)


def producer(cluster: EmbeddedCluster, *, lookup: Any = None, **settings: Any) -> Producer:
    found = None if lookup is None else FoundCluster(lookup, True, lambda: None)
    return Producer(config(cluster, **settings), cluster=found)


def _read(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
        while messages := consumer.fetch(topic, 0, len(found)):
            found += [each.value for each in messages]
    return found


def ends(action: Callable[[], Any], within_s: float = WAIT_S) -> Any:
    """Return what a call returns, or raise what it raises; a call that hangs fails the test."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((action(), None))
        except BaseException as error:  # noqa: BLE001
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(within_s)
    assert found, "the call hangs"
    result, error = found[0]
    if error is not None:
        raise error
    return result


class ScriptedLookup:
    """Answers look-ups with what is set, one after the other; the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(topics, answer)


def led(cluster: EmbeddedCluster) -> FoundTopic:
    return FoundTopic({0: Broker(0, "127.0.0.1", cluster.port(0))})


UNLED = FoundTopic({0: None})


# -- leaders -----------------------------------------------------------------------------------------------------------


def test_a_message_for_a_partition_without_a_leader_has_its_outcome(cluster: EmbeddedCluster, topic: str) -> None:
    with producer(cluster, lookup=ScriptedLookup(UNLED)) as made:
        for _ in range(3):
            with pytest.raises(MessageNotSent, match="no broker leads it"):
                ends(lambda: made.send(topic, b"v", partition=0).result(5), 6)


def test_a_message_is_sent_when_its_partition_has_a_leader_again(cluster: EmbeddedCluster, topic: str) -> None:
    lookup = ScriptedLookup(UNLED, UNLED, led(cluster))
    with producer(cluster, lookup=lookup) as made:
        assert ends(lambda: made.send(topic, b"v", partition=0).result(5), 6).offset == 0


def test_every_message_gets_all_its_tries(cluster: EmbeddedCluster, topic: str) -> None:
    lookup = ScriptedLookup(*[UNLED] * 6, led(cluster))
    with producer(cluster, lookup=lookup, message_send_max_retries=3) as made:
        first = made.send(topic, b"early", partition=0)
        assert isinstance(first.exception(WAIT_S), MessageNotSent)
        assert made.send(topic, b"late", partition=0).result(WAIT_S).offset == 0


def test_a_look_up_that_raises_ends_no_producer(cluster: EmbeddedCluster, topic: str) -> None:
    lookup = ScriptedLookup(RuntimeError("a bug in the look-up"), led(cluster))
    with producer(cluster, lookup=lookup) as made:
        assert ends(lambda: made.send(topic, b"v").result(5), 6).offset == 0


# -- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), RuntimeError("a callback of the test")])
def test_what_a_callback_raises_stops_no_thread(cluster: EmbeddedCluster, topic: str, raised: BaseException) -> None:
    def note(future: SendFuture) -> None:
        raise raised

    with producer(cluster) as made:
        for n in range(3):
            made.send(topic, b"%d" % n).add_done_callback(note)
            assert ends(lambda: made.flush(5), 6)
        future = made.send(topic, b"3")
        assert future.result(5).offset == 3
        if not isinstance(raised, KeyboardInterrupt):
            future.add_done_callback(note)  # at once, and logged as well


@pytest.mark.parametrize("call", ["flush", "close", "sync", "send_all", "result"])
def test_a_callback_cannot_wait_for_itself(cluster: EmbeddedCluster, topic: str, call: str) -> None:
    met: list[object] = []
    made = producer(cluster, producer_type="sync" if call == "sync" else "async")

    def note(future: SendFuture) -> None:
        try:
            if call == "flush":
                made.send(topic, b"from the callback")
                met.append(made.flush())
            elif call == "close":
                made.send(topic, b"from the callback")
                met.append(made.close())
            elif call == "sync":
                met.append(made.send(topic, b"from the callback"))
            elif call == "result":
                met.append(made.send(topic, b"from the callback").result())
            else:
                met.append(made.send_all([b"from the callback"], topic))
        except Exception as error:  # noqa: BLE001
            met.append(error)

    def sends() -> None:
        if call == "sync":
            futures = made._sending.send(topic, b"v", None, None, None, None)
            futures.add_done_callback(note)
        else:
            made.send(topic, b"v").add_done_callback(note)

    ends(sends, 5)
    wait_until(lambda: met, 5, "the callback")
    if call == "close":
        assert met == [1]
    else:
        assert isinstance(met[0], RuntimeError)
        assert "callback" in str(met[0])
        assert ends(made.flush, 5)
        assert made.send(topic, b"after").result(5) is not None
    ends(made.close, 5)


def test_a_callback_that_finds_the_queue_full_does_not_wait_for_itself(cluster: EmbeddedCluster, topic: str) -> None:
    met: list[object] = []
    made = producer(cluster, queue_buffering_max_messages=2, batch_num_messages=1)

    def note(future: SendFuture) -> None:
        try:
            for _ in range(5):
                made.send(topic, b"again")
        except QueueFull as error:
            met.append(error)

    ends(lambda: made.send(topic, b"v").add_done_callback(note), 5)
    wait_until(lambda: met, 5, "the refusal")
    ends(made.close, 5)


def test_a_failed_message_may_be_sent_to_a_new_topic_by_its_callback(cluster: EmbeddedCluster, topic: str) -> None:
    other = f"{topic}-failed"
    cluster.create_topic(other, 1)

    class Lookup:
        def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
            return {name: led(cluster) if name == other else UNLED for name in topics}

    second: list[SendFuture] = []
    with producer(cluster, lookup=Lookup()) as made:
        made.send(topic, b"v", partition=0).add_done_callback(lambda _: second.append(made.send(other, b"v")))
        wait_until(lambda: second, 5, "the callback")
        assert second[0].result(5).topic == other


# -- encoders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["text", 7, ["list"], (b"x",)])
def test_an_encoder_that_returns_no_bytes_fails_its_message_only(
    cluster: EmbeddedCluster, topic: str, found: object
) -> None:
    made = Producer(config(cluster), value_encoder=lambda value: found if value == "bad" else value)
    with made:
        futures = [made.send(topic, b"a"), made.send(topic, b"b")]
        with pytest.raises(TypeError, match="the encoder <lambda> returned"):
            made.send(topic, "bad")
        assert made.flush(WAIT_S)
        assert [each.exception(0) for each in futures] == [None, None]
        with pytest.raises(MessagesNotSent) as caught:
            made.send_all([b"c", "bad", b"d"], topic)
        assert (caught.value.sent, caught.value.failed) == (2, 1)
    assert _read(cluster, topic) == [b"a", b"b", b"c", b"d"]


def test_an_encoder_may_return_any_kind_of_bytes(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(config(cluster), value_encoder=lambda value: bytearray(value)) as made:
        assert made.send(topic, b"a").result(WAIT_S).offset == 0
    assert _read(cluster, topic) == [b"a"]


@pytest.mark.parametrize("partition", [0.0, 1.5, b"0", None.__class__])
def test_a_partition_that_is_no_number_fails_its_message_only(
    cluster: EmbeddedCluster, topic: str, partition: Any
) -> None:
    with producer(cluster) as made:
        with pytest.raises((TypeError, ValueError), match="partition"):
            made.send(topic, b"a", partition=partition)
        assert made.send(topic, b"a", partition=0).result(WAIT_S).offset == 0
        assert made.send(topic, b"a", partition=True - 1).result(WAIT_S).offset == 1


# -- the end -----------------------------------------------------------------------------------------------------------


def ours() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("zkconsumer-producer")]


def test_a_producer_that_is_dropped_sends_what_waits_and_ends_its_threads(cluster: EmbeddedCluster, topic: str) -> None:
    before = set(ours())
    made = producer(cluster)
    futures = [made.send(topic, b"%d" % n) for n in range(10)]
    del made
    gc.collect()
    assert [each.result(WAIT_S).offset for each in futures] == list(range(10))
    wait_until(lambda: not set(ours()) - before, 5, "the end of the threads", state=ours)


def test_close_fails_at_once_what_has_no_outcome(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.faults.add(Fault.delay(30.0, api="produce", topic=topic), times=None)
    made = producer(cluster, batch_num_messages=2, request_max_bytes=1)
    futures = [made.send(topic, b"%d" % n) for n in range(6)]
    time.sleep(0.2)
    started = time.monotonic()
    assert made.close(0) == 6
    assert time.monotonic() - started < 1
    errors = [each.exception(0) for each in futures]
    assert all(isinstance(each, MessageNotSent) and "closed" in str(each) for each in errors), errors
    assert [each.may_be_stored for each in errors if isinstance(each, MessageNotSent)] == [True] * 2 + [False] * 4


def test_an_interrupted_close_closes_all_the_same(
    cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(ours())
    cluster.faults.add(Fault.delay(30.0, api="produce", topic=topic), times=None)
    made = producer(cluster)
    future = made.send(topic, b"v")
    time.sleep(0.1)

    def interrupted(self: object, timeout_s: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchOutcome, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.close()
    monkeypatch.undo()
    assert isinstance(future.exception(5), MessageNotSent)
    cluster.faults.reset()
    wait_until(lambda: not set(ours()) - before, 5, "the end of the threads", state=ours)


def test_waits_for_room_and_for_topics_end_when_the_producer_is_closed(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.faults.add(Fault.delay(30.0, api="produce", topic=topic), times=None)
    made = producer(cluster, queue_buffering_max_messages=2, batch_num_messages=1)
    for _ in range(2):
        made.send(topic, b"v")
    met: list[object] = []

    def waits(name: str) -> None:
        try:
            made.send(name, b"v")
        except ProducerClosed as error:
            met.append(error)

    threads = [threading.Thread(target=waits, args=(topic,)) for _ in range(4)]
    for each in threads:
        each.start()
    time.sleep(0.2)
    assert ends(lambda: made.close(0.1), 5) == 2
    for each in threads:
        each.join(5)
    assert len(met) == 4
    assert made.close() == 0
    with pytest.raises(ProducerClosed):
        made.send(topic, b"v")
    assert made.flush(0)


def test_close_waits_until_brokers_have_read_what_they_do_not_acknowledge(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.faults.add(Fault.delay(0.4, api="produce", topic=topic), times=1)
    with producer(cluster, request_required_acks=0, batch_num_messages=5) as made:
        for n in range(20):
            made.send(topic, b"%d" % n)
    assert _read(cluster, topic) == [b"%d" % n for n in range(20)]


def test_messages_of_many_partitions_are_gathered_within_the_bounds(
    cluster: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    wide = fresh_topic()
    cluster.create_topic(wide, 100)
    with producer(cluster, queue_buffering_max_messages=500) as made:
        bulk = made.bulk(spreads=True)
        for number in range(2000):
            bulk.add(number, wide, b"v")
            assert sum(len(each.pairs) for each in bulk._gathered.values()) <= 500
        assert bulk.finish()[:2] == (2000, 0)


AT_EXIT = """
import sys
from zkconsumer import Producer, ProducerConfig
made = Producer(ProducerConfig(metadata_broker_list=sys.argv[1], producer_type="async", queue_buffering_max_ms=60000))
made.send(sys.argv[2], b"kept")
def scope():
    other = Producer(ProducerConfig(metadata_broker_list=sys.argv[1], producer_type="async",
                                    queue_buffering_max_ms=60000))
    other.send(sys.argv[2], b"dropped")
scope()
"""


def test_a_program_that_ends_without_close_sends_what_waits(cluster: EmbeddedCluster, topic: str) -> None:
    arguments = [sys.executable, "-c", AT_EXIT, f"127.0.0.1:{cluster.port(0)}", topic]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(_read(cluster, topic), key=repr) == [b"dropped", b"kept"]


FORKED = """
import faulthandler, os, sys, threading
from zkconsumer import Producer, ProducerConfig
config = ProducerConfig(metadata_broker_list=sys.argv[1], producer_type="async", queue_buffering_max_ms=1,
                        batch_num_messages=1)
made = Producer(config)
topic, stop = sys.argv[2], threading.Event()
def busy():
    while not stop.is_set():
        made.send(topic, b"parent").done()
        made.flush()
threads = [threading.Thread(target=busy) for _ in range(3)]
for each in threads: each.start()
failed = 0
for n in range(15):
    pid = os.fork()
    if not pid:
        faulthandler.dump_traceback_later(40, exit=True)
        try:
            made.send(topic, b"not here")
        except Exception as error:
            assert "forked" in str(error), error
        made.close()
        with Producer(config) as own:
            own.send(topic, b"child").result(10)
        os._exit(0)
    failed += os.waitpid(pid, 0)[1] != 0
stop.set()
for each in threads: each.join()
made.close()
print(failed)
"""


def test_forked_processes_have_producers_of_their_own(cluster: EmbeddedCluster, topic: str) -> None:
    arguments = [sys.executable, "-c", FORKED, f"127.0.0.1:{cluster.port(0)}", topic]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.stdout.strip(), ended.returncode) == ("0", 0), ended.stderr
    assert _read(cluster, topic).count(b"child") == 15


# -- handlers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [SystemExit(1), RuntimeError("a handler of the test")])
def test_what_a_callback_handler_raises_stops_no_thread(
    cluster: EmbeddedCluster, topic: str, raised: BaseException
) -> None:
    class Handler(CallbackHandler):
        def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
            if any(item.data == b"bad" for item in items):
                raise raised
            return items

    made = Producer(config(cluster), callback_handler=Handler())
    bad = made.send(topic, b"bad")
    assert isinstance(bad.exception(5), MessageNotSent)
    assert made.send(topic, b"good").result(5).offset == 0
    ends(made.close, 5)


@pytest.mark.parametrize("call", ["flush", "close", "result"])
def test_a_callback_handler_cannot_wait_for_itself(cluster: EmbeddedCluster, topic: str, call: str) -> None:
    met: list[object] = []

    class Handler(CallbackHandler):
        def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
            if not met:
                met.append(None)
                try:
                    met.append(
                        {
                            "flush": made.flush,
                            "close": made.close,
                            "result": lambda: made.send(topic, b"other").result(),
                        }[call]()
                    )
                except Exception as error:  # noqa: BLE001
                    met.append(error)
            return items

    made = Producer(config(cluster), callback_handler=Handler())
    first = made.send(topic, b"v")
    wait_until(lambda: len(met) == 2, 5, "the handler")
    if call != "close":
        assert isinstance(met[1], RuntimeError)
        assert first.result(5).offset == 0
    else:
        assert first.exception(5) is not None
    ends(made.close, 5)
