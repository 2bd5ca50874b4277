"""Room in a full queue goes to whoever came first, however much each needs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.queue_room import QueueRoom
from zkconsumer.producer.errors import QueueFull
from zkconsumer.producer.producer import Producer
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

WAIT_S = 20.0


class Queue:
    """A queue with some free places, and callers that take them in threads."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.lock = threading.Lock()
        self.entered: list[str] = []
        self.refused: dict[str, str] = {}
        self.threads: list[threading.Thread] = []
        self.is_closed = False
        self.sends = 0
        self.room = QueueRoom(self.lock, self.fullness, self.make_room)

    def fullness(self, messages: int, size: int) -> str | None:
        return None if messages <= self.free else "places"

    def make_room(self) -> None:
        self.sends += 1

    def check(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed")

    def enter(self, name: str, messages: int, wait_s: float | None) -> None:
        with self.lock:
            try:
                full = self.room.wait(messages, 0, wait_s, self.check)
            except RuntimeError as error:
                full = str(error)
            if full is None:
                self.free -= messages
                self.entered.append(name)
            else:
                self.refused[name] = full

    def come(self, name: str, messages: int, wait_s: float | None = None) -> None:
        """Enter in a thread, and wait until it waits for its turn."""
        waiting = len(self.room.turns)
        thread = threading.Thread(target=self.enter, args=(name, messages, wait_s), daemon=True)
        self.threads.append(thread)
        thread.start()
        wait_until(lambda: len(self.room.turns) > waiting, WAIT_S, f"{name} to wait")

    def release(self, messages: int) -> None:
        with self.lock:
            self.free += messages
            self.room.look()

    def wait_entered(self, *names: str) -> None:
        wait_until(lambda: self.entered == list(names), WAIT_S, f"{names} to enter", state=lambda: self.entered)


def test_nobody_overtakes_one_that_needs_more_room() -> None:
    queue = Queue(free=5)
    queue.come("large", 10)
    queue.come("small", 1)
    queue.come("smaller", 1)
    for _ in range(4):
        queue.release(1)
    assert queue.entered == []
    queue.release(1)
    queue.wait_entered("large")
    queue.release(2)
    queue.wait_entered("large", "small", "smaller")


def test_one_whose_time_is_over_makes_way_for_the_next() -> None:
    queue = Queue(free=1)
    queue.come("large", 10, 0.3)
    queue.come("small", 1, WAIT_S)
    queue.wait_entered("small")
    assert queue.refused == {"large": "places"}


def test_one_that_is_not_first_ends_in_time_too() -> None:
    queue = Queue(free=1)
    queue.come("large", 10)
    queue.come("small", 1, 0.05)
    wait_until(lambda: "small" in queue.refused, WAIT_S, "the end of its wait")
    assert queue.refused == {"small": "earlier messages that wait for room"}
    queue.release(9)
    queue.wait_entered("large")


def test_one_that_may_not_wait_takes_the_room_that_there_is() -> None:
    queue = Queue(free=1)
    queue.come("large", 10)
    queue.enter("hurried", 1, 0.0)
    queue.enter("too late", 1, 0.0)
    assert queue.entered == ["hurried"]
    assert queue.refused == {"too late": "places"}
    queue.release(10)
    queue.wait_entered("hurried", "large")


def test_the_end_of_the_producer_ends_every_wait() -> None:
    queue = Queue(free=0)
    for name in ("one", "two", "three"):
        queue.come(name, 1)
    with queue.lock:
        queue.is_closed = True
        queue.room.look_all()
    wait_until(lambda: len(queue.refused) == 3, WAIT_S, "the end of all waits")
    assert set(queue.refused.values()) == {"closed"}


def test_what_fills_the_queue_is_sent_when_the_first_one_finds_no_room() -> None:
    queue = Queue(free=0)
    queue.enter("hurried", 1, 0.0)
    assert queue.sends == 1
    queue.come("first", 2)
    sends = queue.sends
    queue.release(1)
    wait_until(lambda: queue.sends > sends, WAIT_S, "the queue to be sent once more")
    queue.release(1)
    queue.wait_entered("first")


# -- with a broker -----------------------------------------------------------------------------------------------------


def producer(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    config = ProducerConfig(
        metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", producer_type="async", queue_buffering_max_messages=20,
        batch_num_messages=20, queue_buffering_max_ms=1, **settings,
    )  # fmt: skip
    return Producer(config)


def test_a_batch_as_large_as_the_queue_is_sent_beside_many_small_messages(
    embedded: EmbeddedCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded.create_topic(topic, 2)  # on two brokers, so that the queue is never empty
    embedded.faults.add(Fault.delay(0.01, api="produce", topic=topic), times=None)
    done = threading.Event()
    failures: list[QueueFull] = []
    sent = [0] * 4

    def many(which: int) -> None:
        while not done.is_set():
            try:
                made.send(topic, b"small", partition=which % 2)
                sent[which] += 1
            except QueueFull as error:
                failures.append(error)

    with producer(embedded, queue_enqueue_timeout_ms=3000) as made:
        threads = [threading.Thread(target=many, args=(which,)) for which in range(4)]
        for each in threads:
            each.start()
        wait_until(lambda: min(sent) > 20, WAIT_S, "all threads to send", state=lambda: sent)
        try:
            assert made.send_all([b"large"] * 400, topic).sent == 400
            before = list(sent)
            wait_until(lambda: all(n > b + 20 for n, b in zip(sent, before, strict=True)), WAIT_S, "all to go on",
                       state=lambda: sent)  # fmt: skip
        finally:
            done.set()
            for each in threads:
                each.join()
            embedded.faults.reset()
    assert not failures
