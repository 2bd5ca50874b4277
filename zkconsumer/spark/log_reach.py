"""Checks how long a log itself is, which may be more than its leader reports to consumers.

A leader reports the high watermark as the end of its log: the offset up to which all replicas in sync have the
messages. A leader that was just elected, or came back after a power failure, may report one that is too low for as long
as a replica in sync does not fetch. That takes seconds to a minute, until the replica is found to be down. The messages
are in the log all the time. A fetch shows whether they are: "offset out of range" refers to the log itself, in all
versions from 0.8.0 on.

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
    """The partitions whose logs do not reach these offsets, according to their leader; of others that is unknown.

    Args:
        offsets: none below the start of its log, which would be out of range, too.

    Raises:
        SimpleConsumerError: the broker does not answer.
    """
    requests = [FetchRequest(*name, offset, _SAMPLE_BYTES)
                for name, offset in sorted(offsets.items())]
    answers = consumer.multifetch(requests, max_wait_ms=1, min_bytes=0)
    return {TopicPartition(request.topic, request.partition)
            for request, answer in zip(requests, answers, strict=True) if answer.error_code == _OUT_OF_RANGE}
