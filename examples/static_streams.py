"""Two streams of one topic, each read by its own thread, and an orderly end.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/static_streams.py --zookeeper 127.0.0.1:2181 --group billing --topic clicks

The partitions are assigned to the threads of all processes of the group. At Ctrl-C or SIGTERM each thread finishes the
message it works on, the offsets are committed, and other members take over: nothing is lost or repeated. A
thread that fails ends the program with status 1; its message is not committed, and is delivered again.
"""

from __future__ import annotations

import argparse
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaStream

STREAMS = 2
NAP_S = 0.2


def work(number: int, stream: KafkaStream) -> None:
    """Handle the messages of one stream until it ends. One stream belongs to one thread."""
    for message in stream:
        line = f"{number} {message.partition} {message.offset} {(message.value or b'').decode()}\n"
        print(line, end="", flush=True)  # in one piece: two threads print


def main() -> None:
    parser = argparse.ArgumentParser(description="Read a topic by two threads.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    options = parser.parse_args()

    ends: SimpleQueue[object] = SimpleQueue()  # the one queue that signal handlers may put into
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `&` in a script has it: Ctrl-C is for others
            signal.signal(number, lambda number, frame: ends.put(number))

    config = ConsumerConfig(options.zookeeper, options.group, auto_offset_reset="smallest")
    with ThreadPoolExecutor(STREAMS) as threads, ConsumerConnector(config) as connector:
        streams = connector.create_message_streams({options.topic: STREAMS})[options.topic]
        workers = [threads.submit(work, number, stream) for number, stream in enumerate(streams)]
        for worker in workers:
            worker.add_done_callback(ends.put)
        # Until a signal came, or a thread failed; in short waits: Python handles a signal that came just before a wait
        # when that ends. Leaving the block ends the streams.
        while ends.empty():
            time.sleep(NAP_S)
    for worker in workers:
        worker.result()  # raises what a thread failed of


if __name__ == "__main__":
    main()
