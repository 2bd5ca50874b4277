"""The consumers for asyncio: `AsyncConsumerConnector`, read with `async for`, and `AsyncKafkaConsumer`, with `poll`.

    async with AsyncConsumerConnector(ConsumerConfig("zk1:2181,zk2:2181/kafka", "billing")) as connector:
        [stream] = (await connector.create_message_streams({"clicks": 1}))["clicks"]
        async for message in stream:
            await work(message)

It uses the streams of `zkconsumer`: the same member, the same threads that fetch, the same promises
(docs/SEMANTICS.md). "A thread" in those promises is a task here.
"""

from zkconsumer.aio.call_thread import AsyncRebalanceListener
from zkconsumer.aio.connector import AsyncConsumerConnector
from zkconsumer.aio.kafka_consumer import AsyncKafkaConsumer, AsyncRebalanceCallbacks
from zkconsumer.aio.reading import AsyncKafkaStream, AsyncStreamBatches

__all__ = [
    "AsyncConsumerConnector",
    "AsyncKafkaConsumer",
    "AsyncKafkaStream",
    "AsyncRebalanceCallbacks",
    "AsyncRebalanceListener",
    "AsyncStreamBatches",
]
