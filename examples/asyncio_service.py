"""asyncio: two tasks read a stream each, and SIGTERM or Ctrl-C ends the program in order.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/asyncio_service.py --zookeeper 127.0.0.1:2181 --group async --topic clicks

A message is done when its task asks for the next one. At the signal, the messages in hand may finish; then the offsets
are committed, and the loops end. If a task fails, the others are cancelled, and messages in hand are delivered again.
"""

from __future__ import annotations

import argparse
import asyncio
import signal

from zkconsumer import ConsumerConfig
from zkconsumer.aio import AsyncConsumerConnector, AsyncKafkaStream

STREAMS = 2


async def work(number: int, stream: AsyncKafkaStream[bytes, str]) -> None:
    """Handle the messages of one stream until it ends. One stream belongs to one task."""
    async for message in stream:
        await asyncio.sleep(0)  # what the work awaits: a database, another service
        print(number, message.partition, message.offset, message.value, flush=True)


async def consume(zookeeper: str, group: str, topic: str) -> None:
    config = ConsumerConfig(zookeeper, group, auto_offset_reset="smallest", auto_commit_interval_ms=1000)
    async with AsyncConsumerConnector(config) as connector:
        stop = asyncio.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(name) is not signal.SIG_IGN:  # as `&` in a script has it: Ctrl-C is for others
                asyncio.get_running_loop().add_signal_handler(name, stop.set)
        streams = await connector.create_message_streams({topic: STREAMS}, value_decoder=bytes.decode)

        async def shut_down_at_signal() -> None:
            await stop.wait()
            await connector.shutdown()  # ends the streams, and so the tasks

        async with asyncio.TaskGroup() as tasks:
            for number, stream in enumerate(streams[topic]):
                tasks.create_task(work(number, stream))
            tasks.create_task(shut_down_at_signal())


def main() -> None:
    parser = argparse.ArgumentParser(description="Read a topic with asyncio.")
    parser.add_argument("--zookeeper", required=True, help="host:port,host:port/chroot")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    options = parser.parse_args()
    asyncio.run(consume(options.zookeeper, options.group, options.topic))


if __name__ == "__main__":
    main()
