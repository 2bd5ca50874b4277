"""InitProducerId: an id for an idempotent producer. There is no coordinator of transactions.

Source: kafka.server.KafkaApis.handleInitProducerIdRequest (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final

from simpleconsumer.kafka011 import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.messages import COORDINATOR_NOT_AVAILABLE
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_NO_ID: Final = (-1, -1)


def _read(reader: Reader, version: int) -> str | None:
    """The transactional id."""
    name = reader.nullable_string()
    reader.int32()  # time-out of transactions
    return name


def _answer(asked: Asked[str | None]) -> list[Part]:
    code = asked.errors.get(("", -1), 0)
    if not code and asked.body is not None:
        code = COORDINATOR_NOT_AVAILABLE
    producer = _NO_ID if code else (asked.host.cluster.next_producer_id(), 0)
    return [pack(">ihqh", 0, code, *producer)]


API: Final = ServedApi(apis.INIT_PRODUCER_ID, "init_producer_id", range(2), _read, _answer)
