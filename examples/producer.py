"""A producer: sends the lines of a file in the background, and reports the ones that failed.

    python examples/producer.py --zookeeper 127.0.0.1:2181 --topic clicks --file /etc/services

Its exit status is 1 if a line was not sent.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from zkconsumer import Producer, ProducerConfig
from zkconsumer.producer import SendFuture


def send_lines(producer: Producer, topic: str, path: Path) -> tuple[int, list[str]]:
    """Return how many lines there are, and a sentence about each that was not sent."""
    failures: list[str] = []

    def report(number: int, future: SendFuture) -> None:
        """Runs in a thread of the producer, when a message has its outcome."""
        error = future.exception()
        if error is not None:
            failures.append(f"line {number}: {error}")

    number = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):  # send() waits while the queue of the producer is full
            producer.send(topic, line.rstrip(b"\n")).add_done_callback(partial(report, number))
    producer.flush()
    return number, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--file", required=True, type=Path)
    arguments = parser.parse_args()
    config = ProducerConfig(
        zookeeper_connect=arguments.zookeeper,
        producer_type="async",
        request_required_acks=-1,  # a message that counts as sent survives the loss of its leader
        queue_buffering_max_ms=50,
        message_max_bytes=100_000,
    )
    with Producer(config) as producer:
        lines, failures = send_lines(producer, arguments.topic, arguments.file)
    print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
    print(f"{lines - len(failures)} of {lines} lines were sent")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
