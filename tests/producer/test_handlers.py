"""Callback handlers see and change messages on their way; event handlers take them instead of the brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer import KeyedMessage, Producer, ProducerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.producer import CallbackHandler, MessageNotSent, MessagesNotSent, QueueFull, QueueItem, SentMessage
from zkconsumer.producer.batching.outcome import SendFuture
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

WAIT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, zookeeper=False) as made:
        yield made


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    cluster.create_topic(name, 1)
    return name


def config(cluster: EmbeddedCluster | None = None, **settings: Any) -> ProducerConfig:
    port = 1 if cluster is None else cluster.port(0)
    chosen = {"producer_type": "async", "queue_buffering_max_ms": 20, **settings}
    return ProducerConfig(metadata_broker_list=f"127.0.0.1:{port}", **chosen)


def values(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
        return [message.value for message in consumer.fetch(topic, 0, 0)]


class Recorder(CallbackHandler):
    """Writes down the calls and what they were given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def init(self, properties: Mapping[str, str]) -> None:
        self.calls.append(("init", dict(properties)))

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        self.calls.append(("before_enqueue", item.data))
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        self.calls.append(("after_enqueue", (item.data, added)))

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        if item is not None:
            self.calls.append(("after_dequeuing_existing_data", item.data))
        return super().after_dequeuing_existing_data(item)

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        self.calls.append(("before_sending_data", [each.data for each in items]))
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        self.calls.append(("last_batch_before_close", None))
        return []

    def close(self) -> None:
        self.calls.append(("close", None))


def test_a_message_passes_every_method_in_the_order_of_java(cluster: EmbeddedCluster, topic: str) -> None:
    handler = Recorder()
    with Producer(config(cluster), callback_handler=handler) as producer:
        future = producer.send(topic, b"a")
        assert future.result(WAIT_S) == SentMessage(topic, 0, 0)
    names = [name for name, _ in handler.calls]
    assert names[0] == "before_enqueue"
    assert names.index("after_dequeuing_existing_data") < names.index("before_sending_data")
    assert ("after_enqueue", (b"a", True)) in handler.calls
    assert ("before_sending_data", [b"a"]) in handler.calls
    assert names[-2:] == ["last_batch_before_close", "close"]
    assert values(cluster, topic) == [b"a"]


def test_methods_change_add_and_leave_out_messages(cluster: EmbeddedCluster, topic: str) -> None:
    class Changes(CallbackHandler):
        def before_enqueue(self, item: QueueItem) -> QueueItem:
            item.data = item.data.upper()
            return item

        def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
            return [] if item is None else [item, QueueItem(item.data + b"+", item.topic)]

        def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
            return [each for each in items if each.data != b"B"]

        def last_batch_before_close(self) -> Sequence[QueueItem]:
            return [QueueItem(b"last", topic)]

    producer = Producer(config(cluster), callback_handler=Changes())
    kept, left_out = producer.send(topic, b"a"), producer.send(topic, b"b")
    assert kept.result(WAIT_S).offset == 0
    with pytest.raises(MessageNotSent, match="the callback handler dropped it"):
        left_out.result(WAIT_S)
    assert producer.close(WAIT_S) == 0
    assert values(cluster, topic) == [b"A", b"A+", b"B+", b"last"]


class Raises(CallbackHandler):
    """Raises in one method for one message."""

    def __init__(self, method: str) -> None:
        self.method = method

    def _raise(self, method: str, data: object) -> None:
        if method == self.method and data == b"bad":
            raise RuntimeError("no")

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        self._raise("before_enqueue", item.data)
        return item

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        self._raise("after_dequeuing_existing_data", item and item.data)
        return super().after_dequeuing_existing_data(item)

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        for each in items:
            self._raise("before_sending_data", each.data)
        return items


@pytest.mark.parametrize("method", ["before_enqueue", "after_dequeuing_existing_data", "before_sending_data"])
def test_a_method_that_raises_fails_its_messages_alone(cluster: EmbeddedCluster, topic: str, method: str) -> None:
    with Producer(config(cluster, batch_num_messages=1), callback_handler=Raises(method)) as producer:
        futures = [producer.send(topic, value) for value in (b"1", b"bad", b"2")]
        found = [future.exception(WAIT_S) for future in futures]
    assert [error is None for error in found] == [True, False, True]
    assert f"{method} of the callback handler raised RuntimeError('no')" in str(found[1])
    assert values(cluster, topic) == [b"1", b"2"]


def test_the_last_batch_goes_out_though_its_method_raises(cluster: EmbeddedCluster, topic: str) -> None:
    class Fails(CallbackHandler):
        def last_batch_before_close(self) -> Sequence[QueueItem]:
            raise RuntimeError

        def close(self) -> None:
            raise RuntimeError

    producer = Producer(config(cluster, queue_buffering_max_ms=60_000), callback_handler=Fails())
    future = producer.send(topic, b"a")
    assert producer.close(WAIT_S) == 0
    assert future.result(0).offset == 0


def test_a_handler_may_have_the_spelling_of_java(cluster: EmbeddedCluster, topic: str) -> None:
    class Java:
        def beforeEnqueue(self, item: QueueItem) -> QueueItem:
            return QueueItem(item.getData() + b"!", item.getTopic(), item.partition)

        def beforeSendingData(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
            return items[::-1]

    with Producer(config(cluster), callback_handler=Java()) as producer:
        producer.send_all([b"a", b"b"], topic=topic)
    assert sorted(each or b"" for each in values(cluster, topic)) == [b"a!", b"b!"]


def test_a_message_that_the_handler_keeps_has_its_outcome_at_the_end(cluster: EmbeddedCluster, topic: str) -> None:
    class Keeps(CallbackHandler):
        def __init__(self) -> None:
            self.kept: list[QueueItem] = []

        def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
            self.kept += [item] if item is not None else []
            return []

        def last_batch_before_close(self) -> Sequence[QueueItem]:
            return self.kept[:1]

    producer = Producer(config(cluster, queue_buffering_max_messages=1, batch_num_messages=1), callback_handler=Keeps())
    sent, lost = producer.send(topic, b"a"), producer.send(topic, b"b")  # what it keeps takes no room
    assert producer.flush(WAIT_S)
    assert not sent.done()
    assert producer.close(WAIT_S) == 1
    assert sent.result(0).offset == 0
    with pytest.raises(MessageNotSent, match="the callback handler dropped it"):
        lost.result(0)


def test_with_a_synchronous_producer_a_message_that_is_kept_has_failed(cluster: EmbeddedCluster, topic: str) -> None:
    class Keeps(CallbackHandler):
        def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
            return [] if item is None or item.data == b"bad" else [item]

    with Producer(config(cluster, producer_type="sync"), callback_handler=Keeps()) as producer:
        producer.send(topic, b"a")
        with pytest.raises(MessageNotSent, match="the callback handler dropped it"):
            producer.send(topic, b"bad")
        producer.send(topic, b"b")
    assert values(cluster, topic) == [b"a", b"b"]


def test_an_encoder_that_raises_fails_its_message_alone(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(config(cluster), callback_handler=CallbackHandler()) as producer:
        good, bad = producer.send(topic, b"a"), producer.send(topic, "no bytes")
        assert good.result(WAIT_S).offset == 0
        with pytest.raises(MessageNotSent, match="DefaultEncoder needs bytes"):
            bad.result(WAIT_S)


# -- event handlers ----------------------------------------------------------------------------------------------------


class Takes:
    """An event handler that keeps what it gets."""

    def __init__(self) -> None:
        self.batches: list[list[KeyedMessage]] = []
        self.is_closed = False
        self.properties: Mapping[str, str] = {}
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def init(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def handle(self, events: Sequence[KeyedMessage]) -> None:
        assert self.may_go_on.wait(WAIT_S)
        if any(each.message == "bad" for each in events):
            raise RuntimeError("no")
        self.batches.append(list(events))

    def close(self) -> None:
        self.is_closed = True


def test_an_event_handler_takes_batches_and_no_broker_is_asked() -> None:
    handler = Takes()
    with Producer(config(batch_num_messages=2), event_handler=handler) as producer:
        futures = [producer.send("t", value, key="k") for value in ("a", "b", "c")]
        assert [future.result(WAIT_S) for future in futures] == [SentMessage("t", -1, None)] * 3
    assert [[each.message for each in batch] for batch in handler.batches] == [["a", "b"], ["c"]]
    assert handler.batches[0][0].key == "k"
    assert handler.is_closed


def test_what_an_event_handler_raises_is_the_outcome_of_its_batch() -> None:
    with Producer(config(batch_num_messages=1), event_handler=Takes()) as producer:
        futures: list[SendFuture] = [producer.send("t", value) for value in ("a", "bad", "b")]
        assert [future.exception(WAIT_S) is None for future in futures] == [True, False, True]
        with pytest.raises(MessageNotSent, match=r"handle of the event handler raised RuntimeError\('no'\)"):
            futures[1].result()
        with pytest.raises(MessagesNotSent, match="1 of 3 messages were not sent; the first one is number 1"):
            producer.send_all(["a", "bad", "b"], topic="t")


def test_a_synchronous_producer_raises_what_its_event_handler_raises() -> None:
    handler = Takes()
    with Producer(config(producer_type="sync"), event_handler=handler) as producer:
        producer.send(KeyedMessage("t", "k", "a"))
        with pytest.raises(MessageNotSent, match="RuntimeError"):
            producer.send("t", "bad")
    assert [[each.message for each in batch] for batch in handler.batches] == [["a"]]


def test_the_queue_in_front_of_an_event_handler_has_a_bound() -> None:
    handler, seen = Takes(), Recorder()
    handler.may_go_on.clear()
    settings = {"queue_buffering_max_messages": 2, "batch_num_messages": 1, "queue_enqueue_timeout_ms": 0}
    producer = Producer(config(**settings), event_handler=handler, callback_handler=seen)
    producer.send("t", "a")
    producer.send("t", "b")
    with pytest.raises(QueueFull, match="it has 2 messages"):
        producer.send("t", "c")
    assert seen.calls[-1] == ("after_enqueue", ("c", False))
    handler.may_go_on.set()
    assert producer.flush(WAIT_S)
    assert producer.close(WAIT_S) == 0
    assert [[each.message for each in batch] for batch in handler.batches] == [["a"], ["b"]]


def test_close_does_not_wait_longer_than_it_is_told_for_a_handler_that_hangs() -> None:
    handler = Takes()
    handler.may_go_on.clear()
    producer = Producer(config(batch_num_messages=1), event_handler=handler)
    future = producer.send("t", "a")
    assert producer.close(0.2) == 1
    with pytest.raises(MessageNotSent, match="the producer was closed"):
        future.result(0)
    handler.may_go_on.set()
    wait_until(lambda: len(handler.batches) == 1, WAIT_S, "the handler goes on")


def test_classes_that_settings_name_get_their_properties() -> None:
    settings = {
        "event_handler": f"{__name__}:Takes", "event_handler_props": "a=1,b=x y",
        "callback_handler": f"{__name__}:Recorder",
    }  # fmt: skip
    with Producer(config(**settings)) as producer:
        sent = producer.send("t", "a").result(WAIT_S)
    assert sent == SentMessage("t", -1, None)
    for wrong in ({"event_handler": "nowhere:Takes"}, {**settings, "event_handler_props": "a"}):
        with pytest.raises(ConfigError, match=r"event\.handler"):
            Producer(config(**wrong))
