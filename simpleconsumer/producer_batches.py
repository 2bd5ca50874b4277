"""What producers need of Kafka 0.11 and later: record batches, producer ids, and which broker takes what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simpleconsumer.kafka011.record_encode import NO_PRODUCER, BatchProducer, Run, encode_producer_batch
from simpleconsumer.messages.apis import INIT_PRODUCER_ID, PRODUCE
from simpleconsumer.types import NO_ID, ProducerId

__all__ = [
    "NO_ID", "NO_PRODUCER", "RECORD_BATCH", "BatchProducer", "ProducerId", "Run", "encode_producer_batch",
    "takes_producer_ids", "takes_zstd",
]  # fmt: skip

RECORD_BATCH: Final = 2
"""The magic of record batches."""
_FIRST_WITH_ZSTD: Final = 7


def takes_zstd(served: Mapping[int, range]) -> bool:
    """Return whether a broker that serves these versions takes batches with zstd: Kafka 2.1 and later."""
    return _FIRST_WITH_ZSTD in served.get(PRODUCE.key, ())


def takes_producer_ids(served: Mapping[int, range]) -> bool:
    """Return whether a broker that serves these versions keeps batches once: Kafka 0.11 and later."""
    return any(version in served.get(INIT_PRODUCER_ID.key, ()) for version in INIT_PRODUCER_ID.versions)
