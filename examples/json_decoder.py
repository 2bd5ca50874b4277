"""Values decoded from JSON, and how to handle messages that are not JSON, or not what was expected.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/json_decoder.py --zookeeper 127.0.0.1:2181 --group report --topic clicks
    printf '{"user": "ann"}\nno JSON\n{"user": "bob"}\n' | zkconsumer produce --zookeeper 127.0.0.1:2181 --topic clicks

A decoder is any function of bytes. When it raises, `on_message_error` decides: `raise` raises DecoderFailed in the
loop, which continues after the message; `skip` logs it and continues; `stop` delivers no more of that partition and
keeps its offset before the message until the program is started again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from zkconsumer import ConsumerConfig, ConsumerConnector, DecoderFailed, KafkaStream


def user(value: bytes) -> str:
    """Return the user of a click; whatever is raised here, DecoderFailed carries it to the loop."""
    click = json.loads(value)
    if not isinstance(click, dict) or "user" not in click:
        raise ValueError(f"no click with a user: {click!r:.100}")
    return str(click["user"])


def read(stream: KafkaStream) -> None:
    """Print the users of all clicks; report clicks that cannot be read."""
    while True:
        try:
            for message in stream:
                print(message.partition, message.offset, message.value, flush=True)
            return  # the connector was shut down
        except DecoderFailed as error:
            # Done when the loop asks for the next message: keep it now, or it is gone.
            print(f"passed over: {error.topic} {error.partition} {error.offset}: {error.__cause__}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description="Read a topic of JSON.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--on-message-error", choices=["raise", "skip", "stop"], default="raise")
    options = parser.parse_args()

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `&` in a script has it: Ctrl-C is for others
            signal.signal(number, lambda number, frame: sys.exit())  # an exception in the loop: commits what is done

    config = ConsumerConfig(
        options.zookeeper,
        options.group,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=1000,
        on_message_error=options.on_message_error,
    )
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({options.topic: 1}, value_decoder=user)[options.topic]
        read(stream)


if __name__ == "__main__":
    main()
