"""EndTxn: commits or aborts the transaction of a producer.

Source: kafka.server.KafkaApis.handleEndTxnRequest, EndTxnRequest.json (2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final, NamedTuple

from simpleconsumer.messages import apis
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi, fenced_code
from zkconsumer.testing.embedded.messages import Refusal
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API"]

_FIRST_WITH_FENCED: Final = 2


class EndTxn(NamedTuple):
    """Whose transaction, and whether its messages are to be read."""

    name: str
    producer: ProducerId
    commit: bool


def _read(reader: Reader, version: int) -> EndTxn:
    body = EndTxn(reader.string(), ProducerId(reader.int64(), reader.int16()), bool(reader.int8()))
    reader.end()
    return body


def _answer(asked: Asked[EndTxn]) -> list[Part]:
    body = asked.body
    code = asked.errors.get(("", -1), 0)
    if not code:
        try:
            asked.host.transactions.end(body.name, body.producer, commit=body.commit)
        except Refusal as refusal:
            code = fenced_code(refusal.code, asked.version >= _FIRST_WITH_FENCED)
    return [pack(">ih", 0, code) + asked.encoding(apis.END_TXN).end]


API: Final = ServedApi(apis.END_TXN, "end_txn", range(4), _read, _answer)
