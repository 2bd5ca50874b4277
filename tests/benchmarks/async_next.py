"""What `async for` costs beside `for`, when messages are there: one stream, fed with chunks that were fetched before.

    python tests/benchmarks/async_next.py                  # 100 B messages, 9 rounds
    python tests/benchmarks/async_next.py --size 1000

In each round both read the same chunks, one after the other, in turns. Nothing else runs: no broker, no other thread.
Medians of CPU time over the rounds are printed. "async for, with a task switch" awaits `asyncio.sleep(0)` in the loop,
as a body does that awaits something.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # in place of this folder, where `rebalance` is another benchmark

from rebalance.lease import lease_clock
from simpleconsumer.dialect import KAFKA08
from simpleconsumer.kafka08.message_set import encode_message_set
from simpleconsumer.types import Message, TopicPartition
from zkconsumer import ConsumerConfig, KafkaStream
from zkconsumer.aio.reading import AsyncKafkaStream, LoopStream, Reading
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.partition_queue import Chunk, PartitionQueue
from zkconsumer.streams.stream import StreamParts

CHUNK_BYTES = 1024 * 1024
CHUNKS = 30


class Held:
    """A lease that lasts."""

    until = math.inf


def parts() -> StreamParts:
    return StreamParts("t-0", ConsumerConfig("localhost:1", "g", consumer_timeout_ms=0), Held(), lease_clock)


def chunks(size: int) -> list[Chunk]:
    each = CHUNK_BYTES // (size + 26)
    made = []
    for first in range(0, CHUNKS * each, each):
        messages = [Message("t", 0, at, at + 1, None, b"x" * size) for at in range(first, first + each)]
        data = bytes(encode_message_set(messages, "none", offsets=list(range(first, first + each))))
        made.append(Chunk(data, first + each, KAFKA08))
    return made


def feed(stream: KafkaStream, size: int) -> int:
    queue = PartitionQueue(TopicPartition("t", 0), 0, stream, ByteBudget(1 << 30))
    for chunk in chunks(size):
        queue.push(chunk)
    return CHUNKS * (CHUNK_BYTES // (size + 26))


def read(size: int) -> float:
    stream: KafkaStream = KafkaStream(parts())
    count, seen = feed(stream, size), 0
    started_at = time.process_time()
    for message in stream:
        seen += len(message.value)
        count -= 1
        if not count:
            break
    return (time.process_time() - started_at) / (seen / size)


def read_async(size: int, switches: bool = False) -> float:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        inner: LoopStream = LoopStream(parts(), loop, lambda: None)
        stream: AsyncKafkaStream = AsyncKafkaStream(Reading(inner, loop), None)
        count, seen = feed(inner, size), 0
        started_at = time.process_time()
        async for message in stream:
            seen += len(message.value)
            count -= 1
            if not count:
                break
            if switches:
                await asyncio.sleep(0)
        return (time.process_time() - started_at) / (seen / size)

    return asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description="What async for costs beside for.")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    ways: dict[str, Callable[[], float]] = {
        "for": lambda: read(options.size),
        "async for": lambda: read_async(options.size),
        "async for, with a task switch": lambda: read_async(options.size, switches=True),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            found[name].append(way())
    base = statistics.median(found["for"])
    for name, times in found.items():
        median = statistics.median(times)
        print(f"{name}: {median * 1e6:.2f} us a message, {1 / median:,.0f} a second, {median / base:.2f} times `for`")


if __name__ == "__main__":
    main()
