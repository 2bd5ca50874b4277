"""How far a log reaches, which is not how far readers get it.

A leader names the high watermark as the end of its log: the offset up to which all replicas in sync have the messages.
One that was just chosen, or came back after a loss of power, may name one that is too low for as long as a replica in
sync does not fetch: until that is seen to be gone, which takes seconds to a minute. The messages are there all the
while. Whether they are a fetch tells: "offset out of range" goes by the log itself, in all versions from 0.8.0 on.

Source: Kafka 0.8.2.2, kafka.log.Log.read; 2.8.2, kafka.log.Log.read; answers of brokers from 0.8.0 to 3.9.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import FetchRequest, TopicPartition

__all__ = ["ends_before"]

_OUT_OF_RANGE: Final = 1
_SAMPLE_BYTES: Final = 64


def ends_before(consumer: SimpleConsumer, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """The partitions whose logs do not reach these offsets, as their leader says; of all others that is not known.

    Args:
        offsets: none below the begin of its log, which is out of range, too.

    Raises:
        SimpleConsumerError: the broker does not answer.
    """
    requests = [FetchRequest(name.topic, int(name.partition), offset, _SAMPLE_BYTES)
                for name, offset in sorted(offsets.items())]
    answers = consumer.multifetch(requests, max_wait_ms=1, min_bytes=0)
    return {TopicPartition(request.topic, request.partition)
            for request, answer in zip(requests, answers, strict=True) if answer.error_code == _OUT_OF_RANGE}
