"""Leaves out the batches of aborted transactions, as `isolation.level=read_committed` wants it.

The answer to a fetch lists the aborted transactions of a partition. A batch of such a producer is left out from the
first offset of the transaction on, up to its abort marker.

Source: org.apache.kafka.clients.consumer.internals.Fetcher.PartitionRecords (1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.batch_head import HEAD_BYTES, IS_CONTROL, BatchHead
from simpleconsumer.kafka011.varints import read_varint, read_varlong
from simpleconsumer.types import AbortedTransaction, Buffer

__all__ = ["AbortedBatches"]

_ABORT: Final = 0
_MARKER = Struct(">hh")


class AbortedBatches:
    """Which producers have an aborted transaction open at the place that reading has come to.

    Args:
        aborted: From the answer to the fetch, in any order.
    """

    __slots__ = ("_open", "_to_come")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        """Return whether anything may be left out from here on."""
        return bool(self._to_come or self._open)

    def copy(self) -> AbortedBatches:
        """Return a copy, which reading behind an error begins with."""
        other = AbortedBatches(())
        other._to_come, other._open = list(self._to_come), self._open
        return other

    def leaves_out(self, head: BatchHead, buffer: Buffer, position: int) -> bool:
        """Return whether nothing of a batch is delivered.

        To be called once for each control or transactional batch, in their order.

        Args:
            position: Where the batch starts in the buffer.
        """
        attributes = head.attributes
        while self._to_come and self._to_come[-1].first_offset <= head.last_offset:
            self._open |= {self._to_come.pop().producer_id}
        if attributes & IS_CONTROL:
            if head.producer_id in self._open and _is_abort(buffer, position + HEAD_BYTES):
                self._open -= {head.producer_id}
            return True
        return head.producer_id in self._open


def _is_abort(buffer: Buffer, position: int) -> bool:
    """Return whether a control record is the marker of an aborted transaction; its key holds version and type."""
    try:
        _, position = read_varint(buffer, position)
        _, position = read_varlong(buffer, position + 1)
        _, position = read_varint(buffer, position)
        length, position = read_varint(buffer, position)
        return length >= _MARKER.size and _MARKER.unpack_from(buffer, position)[1] == _ABORT
    except (DecodeError, IndexError, error):
        return False
