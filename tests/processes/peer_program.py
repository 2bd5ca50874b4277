"""A member of a group of brokers that writes its history: confluent-kafka's consumer, or kafka-python's.

`python peer_program.py confluent|kafka-python NAME TOPIC SETTINGS`, the settings as JSON. Its lines are events as
`zkconsumer.testing.history` defines them, and the notes `ready` and `left`. It leaves in order when its standard input
ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from zkconsumer.testing.history.events import Event, format_event, id_of


class History:
    """Writes events, one a line, each with one system call."""

    def __init__(self, member: str) -> None:
        self._member = member
        self._held: set[tuple[str, int]] = set()
        self._is_ready = False

    def write(self, kind: str, topic: str, partition: int, offset: int = -1, value: bytes = b"") -> None:
        """Append an event."""
        event = Event(time.monotonic_ns(), kind, self._member, topic, partition, offset, id_of(value))
        os.write(1, f"{format_event(event)}\n".encode())

    def note(self, word: str) -> None:
        """Append a line about the member."""
        os.write(1, f"# {time.monotonic_ns()} {word} \n".encode())

    def assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Append what is new."""
        for place in sorted(set(partitions) - self._held):
            self._held.add(place)
            self.write("assigned", *place)
        if not self._is_ready:
            self._is_ready = True
            self.note("ready")

    def given_up(self, partitions: Iterable[tuple[str, int]], kind: str = "revoked") -> None:
        """Append what it had."""
        for place in sorted(set(partitions) & self._held):
            self._held.discard(place)
            self.write(kind, *place)

    def end(self) -> None:
        """Nothing is delivered any more: all is given up."""
        self.given_up(self._held)


def confluent(settings: dict[str, Any], topic: str, history: History, stop: threading.Event) -> None:
    """Consume with librdkafka."""
    from confluent_kafka import Consumer

    def places(found: Iterable[Any]) -> list[tuple[str, int]]:
        return [(each.topic, each.partition) for each in found]

    consumer = Consumer(settings)
    consumer.subscribe(
        [topic], on_assign=lambda _, found: history.assigned(places(found)),
        on_revoke=lambda _, found: history.given_up(places(found)),
        on_lost=lambda _, found: history.given_up(places(found), "lost"),
    )  # fmt: skip
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            history.write("deliver", message.topic(), message.partition(), message.offset(), message.value())
            history.write("done", message.topic(), message.partition(), message.offset())
    history.end()
    consumer.close()


def kafka_python(settings: dict[str, Any], topic: str, history: History, stop: threading.Event) -> None:
    """Consume with kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            history.assigned((each.topic, each.partition) for each in assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            history.given_up((each.topic, each.partition) for each in revoked)

    consumer = KafkaConsumer(**settings)
    consumer.subscribe([topic], listener=Listener())
    while not stop.is_set():
        for messages in consumer.poll(timeout_ms=100).values():
            for message in messages:
                history.write("deliver", message.topic, message.partition, message.offset, message.value)
                history.write("done", message.topic, message.partition, message.offset)
    history.end()
    consumer.close()


def main() -> None:
    """Consume until the standard input ends."""
    kind, name, topic, settings = sys.argv[1:]
    history, stop = History(name), threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    consume = confluent if kind == "confluent" else kafka_python
    consume(json.loads(settings), topic, history, stop)
    history.note("left")


if __name__ == "__main__":
    main()
