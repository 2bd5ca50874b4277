"""The interceptors of a consumer, one after the other: they see records before `poll` returns, and commits. Pure.

An interceptor that raises changes nothing: it is logged, and the next one gets what this one got.

Source: ConsumerInterceptor, ConsumerInterceptors (Kafka 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from simpleconsumer.types import TopicPartition
from zkconsumer.polling.records import ConsumerRecords, OffsetAndMetadata

__all__ = ["ConsumerInterceptor", "ConsumerInterceptors"]

logger = logging.getLogger("zkconsumer.polling")


class ConsumerInterceptor(Protocol):
    """What an interceptor has to offer; it is called in the thread of `poll`. A method `close` may be left out."""

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return the records that `poll` returns: these, or others."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See offsets that were committed."""


class ConsumerInterceptors:
    """A chain of interceptors.

    Args:
        interceptors: In the order in which they are called.
    """

    def __init__(self, interceptors: Iterable[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return what the last interceptor has made of the records."""
        for interceptor in self._interceptors:
            try:
                changed: object = interceptor.on_consume(records)
            except Exception:  # noqa: BLE001 - an interceptor of the application must not stop the consumer
                self._log(interceptor, "on_consume")
                continue
            if isinstance(changed, ConsumerRecords):
                records = changed
            else:  # such as None where `return` was forgotten: the records would be lost
                logger.warning("on_consume of interceptor %s returned %s instead of ConsumerRecords, which is ignored",
                               type(interceptor).__name__, type(changed).__name__)  # fmt: skip
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report committed offsets to all interceptors."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:  # noqa: BLE001
                self._log(interceptor, "on_commit")

    def close(self) -> None:
        """Close all interceptors that can be closed."""
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if close is None:
                continue
            try:
                close()
            except Exception:  # noqa: BLE001
                self._log(interceptor, "close")

    def _log(self, interceptor: ConsumerInterceptor, method: str) -> None:
        logger.warning("%s of interceptor %s failed", method, type(interceptor).__name__, exc_info=True)
