"""A member of a group in a process of its own: `python group_peer.py confluent|kafka '{settings}' topic`.

It commits each message that it gets before it asks for the next one, writes a JSON line for whatever happens, and ends
in order when its standard input ends.

    {"assigned": [0, 1]}    the partitions that it has now
    {"got": [partition, offset, text]}
    {"committed": [partition, offset]}
    {"error": text}
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def run_confluent(settings: dict[str, Any], topic: str, ended: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    held: set[int] = set()

    def changed(given: list[TopicPartition] = [], taken: list[TopicPartition] = []) -> None:  # noqa: B006
        held.difference_update(each.partition for each in taken)
        held.update(each.partition for each in given)
        say(assigned=sorted(held))

    consumer = Consumer({"enable.auto.commit": False, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe(
        [topic], on_assign=lambda _, given: changed(given=given), on_revoke=lambda _, taken: changed(taken=taken),
        on_lost=lambda _, taken: changed(taken=taken),
    )  # fmt: skip
    while not ended.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            say(error=str(message.error()))
            continue
        say(got=[message.partition(), message.offset(), message.value().decode()])
        try:
            consumer.commit(message, asynchronous=False)
            say(committed=[message.partition(), message.offset() + 1])
        except KafkaException as error:
            say(error=str(error))
    consumer.close()


def run_kafka_python(settings: dict[str, Any], topic: str, ended: threading.Event) -> None:
    import kafka

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say(assigned=[])

        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=sorted(each.partition for each in assigned))

    if "api_version" in settings:
        settings["api_version"] = tuple(settings["api_version"])
    consumer = kafka.KafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **settings)
    consumer.subscribe([topic], listener=Listener())
    while not ended.is_set():
        for where, records in consumer.poll(timeout_ms=100, max_records=1).items():
            for record in records:
                say(got=[where.partition, record.offset, record.value.decode()])
                try:
                    consumer.commit()
                    say(committed=[where.partition, record.offset + 1])
                except kafka.errors.KafkaError as error:
                    say(error=str(error))
    consumer.close(autocommit=False)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    {"confluent": run_confluent, "kafka": run_kafka_python}[sys.argv[1]](json.loads(sys.argv[2]), sys.argv[3], over)
