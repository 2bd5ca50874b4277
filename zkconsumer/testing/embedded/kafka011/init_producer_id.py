"""InitProducerId: an id for an idempotent producer, or the next epoch of a transactional one.

Source: kafka.server.KafkaApis.handleInitProducerIdRequest, InitProducerIdRequest.json (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, fenced_code
from zkconsumer.testing.embedded.kafka011.transaction_state import NO_PRODUCER
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_FIRST_WITH_PRODUCER: Final = 3
_FIRST_WITH_FENCED: Final = 4


class InitProducerId(NamedTuple):
    """Transactional id (None: an idempotent producer), longest time of a transaction, and what the producer had."""

    name: str | None
    timeout_ms: int
    producer: ProducerId


def _read(reader: Reader, version: int) -> InitProducerId:
    name, timeout_ms, producer = reader.nullable_string(), reader.int32(), NO_PRODUCER
    if version >= _FIRST_WITH_PRODUCER:
        producer = ProducerId(reader.int64(), reader.int16())
    reader.end()
    return InitProducerId(name, timeout_ms, producer)


def _answer(asked: Asked[InitProducerId]) -> list[Part]:
    code, producer = asked.errors.get(("", -1), 0), NO_PRODUCER
    if not code:
        code, producer = _started(asked)
    return [pack(">ihqh", 0, code, *producer) + asked.encoding(apis.INIT_PRODUCER_ID).end]


def _started(asked: Asked[InitProducerId]) -> tuple[int, ProducerId]:
    """Error code, and id and epoch."""
    body = asked.body
    if body.name is None:
        return 0, ProducerId(asked.host.cluster.next_producer_id(), 0)
    try:
        return 0, asked.host.transactions.start(body.name, body.timeout_ms, body.producer)
    except Refusal as refusal:
        return fenced_code(refusal.code, asked.version >= _FIRST_WITH_FENCED), NO_PRODUCER


API: Final = ServedApi(apis.INIT_PRODUCER_ID, "init_producer_id", range(5), _read, _answer)
