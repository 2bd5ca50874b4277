"""All topics that match a filter, also topics that are created later.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/whitelist.py --zookeeper 127.0.0.1:2181 --group audit --topic 'clicks,logs-.*'
    seq 10 | zkconsumer produce --zookeeper 127.0.0.1:2181 --topic logs-new

A comma means "or"; the rest is a regular expression that must match the whole name of a topic. A topic that is
created while the program runs is read from its start. Ctrl-C and SIGTERM interrupt the loop: done
messages are committed, and the message in hand is delivered again.
"""

from __future__ import annotations

import argparse
import signal
import sys

from zkconsumer import ConsumerConfig, ConsumerConnector, Whitelist


def main() -> None:
    parser = argparse.ArgumentParser(description="Read all topics that a filter lets through.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True, help="a filter, as 'clicks,logs-.*'")
    options = parser.parse_args()

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `&` in a script has it: Ctrl-C is for others
            signal.signal(number, lambda number, frame: sys.exit())  # an exception in the loop below

    config = ConsumerConfig(
        options.zookeeper, options.group, auto_offset_reset="smallest", auto_commit_interval_ms=1000
    )
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams_by_filter(Whitelist(options.topic))
        for message in stream:
            print(message.topic, message.partition, message.offset, (message.value or b"").decode(), flush=True)


if __name__ == "__main__":
    main()
