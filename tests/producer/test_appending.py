"""Messages without a key are added to the batch that is open for them by the kernel, or in Python, with one outcome."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from stored_pairs import stored

from simpleconsumer import kernel
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.outcome import SendFuture
from zkconsumer.producer.errors import ProducerClosed
from zkconsumer.producer.producer import Producer
from zkconsumer.testing import EmbeddedCluster

WAIT_S = 30.0
ODD: list[tuple[Any, ...]] = [
    (b"",), (None, b"k"), (b"v", b"k"), (b"x" * 3000,), (b"x" * 2900,), ("text",), (7,), (bytearray(b"b"),), (None,),
]  # fmt: skip
"""Values and keys: small, large, too large, and such as no encoder takes."""


@pytest.fixture(params=["kernel", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(kernel, "compiled", None)
    elif kernel.compiled is None:
        pytest.skip(kernel.description)
    return str(request.param)


def producer(cluster: EmbeddedCluster, key_encoder: Callable[[Any], bytes] | None = None, **settings: Any) -> Producer:
    brokers = ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in range(2))
    config = ProducerConfig(metadata_broker_list=brokers, producer_type="async", **settings)
    return Producer(config, key_encoder=key_encoder)


def in_log(cluster: EmbeddedCluster, topic: str) -> dict[int, list[bytes | None]]:
    return {number: [value for _, value in stored(cluster, topic, number)] for number in range(2)}


def outcome(send: Callable[[], SendFuture]) -> str:
    """What became of a message, in words without places."""
    try:
        error = send().exception(WAIT_S)
    except (TypeError, ValueError) as refused:
        error = refused  # type: ignore[assignment]
    return "sent" if error is None else f"{type(error).__name__}"


def test_odd_messages_have_the_same_outcomes_on_both_paths(
    embedded: EmbeddedCluster, fresh_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for compiled in (kernel.compiled, None):
        monkeypatch.setattr(kernel, "compiled", compiled)
        topic = fresh_topic()
        embedded.create_topic(topic, 2)
        with producer(embedded, queue_buffering_max_ms=5, message_max_bytes=3000, compression_codec="none") as made:
            made.send(topic, b"first").result(WAIT_S)
            outcomes = []
            for odd in ODD:
                made.send(topic, b"opens a batch")
                outcomes.append(outcome(partial(made.send, topic, *odd)))
        log = in_log(embedded, topic)
        found.append((outcomes, Counter(value for values in log.values() for value in values)))
    assert found[0] == found[1]
    assert Counter(found[0][0])["sent"] >= 4


def test_messages_of_many_threads_are_stored_as_often_as_acknowledged_though_the_producer_is_closed_meanwhile(
    embedded: EmbeddedCluster, topic: str, path: str
) -> None:
    made = producer(
        embedded, queue_buffering_max_ms=2, queue_buffering_max_messages=300, batch_num_messages=50,
        queue_enqueue_timeout_ms=-1,
    )  # fmt: skip
    futures: list[list[tuple[bytes, SendFuture]]] = [[] for _ in range(4)]
    are_many = threading.Event()

    def send(thread: int) -> None:
        try:
            for number in range(1_000_000):
                value = b"%d-%d" % (thread, number)
                futures[thread].append((value, made.send(topic, value)))
                if number == 3000:
                    are_many.set()
        except ProducerClosed:
            pass

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert are_many.wait(WAIT_S)
    made.close(timeout_s=WAIT_S)
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    taken = [(value, future.exception(WAIT_S)) for each in futures for value, future in each]
    log = in_log(embedded, topic)
    assert Counter(value for values in log.values() for value in values) == Counter(
        value for value, error in taken if error is None
    )
    for values in log.values():
        for thread in range(4):
            numbers = [int(value.split(b"-")[1]) for value in values if value and value.startswith(b"%d-" % thread)]
            assert numbers == sorted(numbers)


@pytest.mark.skipif(kernel.compiled is None, reason=kernel.description)
def test_the_kernel_adds_most_messages_and_leaves_the_first_and_last_of_a_batch_to_python(
    embedded: EmbeddedCluster, topic: str
) -> None:
    with producer(embedded, queue_buffering_max_ms=5000, batch_num_messages=10) as made:
        made.send(topic, b"the layout is known").result(WAIT_S)
        append = made._append
        assert append is not None
        added = [append(topic, b"nothing is open")]
        for number in range(100):
            future = append(topic, b"%d" % number)
            added.append(future)
            if future is None:
                made.send(topic, b"%d" % number)
        by_kernel = [future for future in added if future is not None]
        assert made.flush(WAIT_S)
        assert len({future.result(0).offset for future in by_kernel}) >= len(by_kernel) // 2
        assert len(by_kernel) == 80


def test_an_encoder_of_keys_is_asked_about_messages_without_a_key_too(
    embedded: EmbeddedCluster, topic: str, path: str
) -> None:
    def encoded(key: bytes | None) -> bytes:
        return b"none" if key is None else key

    with producer(embedded, queue_buffering_max_ms=50, key_encoder=encoded) as made:
        made.send(topic, b"the layout is known", b"key").result(WAIT_S)
        sent = [made.send(topic, b"%d" % number) for number in range(20)]
        assert made.flush(WAIT_S)
        assert all(future.done() for future in sent)
    keys = Counter(key for number in range(2) for key, _ in stored(embedded, topic, number))
    assert keys == {b"key": 1, b"none": 20}, path
