"""Leaves out the batches of aborted transactions, as `isolation.level=read_committed` wants it.

The answer to a fetch lists the aborted transactions of a partition. A batch of such a producer is left out from the
first offset of the transaction on, up to its abort marker.

Source: org.apache.kafka.clients.consumer.internals.Fetcher.PartitionRecords (1.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
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

    __slots__ = ("_begun", "_has_own_set", "_in_order", "_open")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._in_order = sorted(aborted, key=lambda each: each.first_offset)
        self._begun = 0
        self._open: set[int] = set()
        self._has_own_set = True

    def __bool__(self) -> bool:
        """Return whether anything may be left out from here on."""
        return bool(self._open) or self._begun < len(self._in_order)

    def copy(self) -> AbortedBatches:
        """Return a copy, which reading behind an error begins with; what is open is copied when it changes."""
        other = copy(self)
        self._has_own_set = other._has_own_set = False
        return other

    def leaves_out(self, head: BatchHead, buffer: Buffer, position: int) -> bool:
        """Return whether nothing of a batch is delivered.

        To be called once for each control or transactional batch, in their order.

        Args:
            position: Where the batch starts in the buffer.
        """
        in_order, last = self._in_order, head.last_offset
        while self._begun < len(in_order) and in_order[self._begun].first_offset <= last:
            self._own_set().add(in_order[self._begun].producer_id)
            self._begun += 1
        if head.attributes & IS_CONTROL:
            if head.producer_id in self._open and _is_abort(buffer, position + HEAD_BYTES):
                self._own_set().discard(head.producer_id)
            return True
        return head.producer_id in self._open

    def _own_set(self) -> set[int]:
        """Return what is open, as a set that no copy shares."""
        if not self._has_own_set:
            self._open, self._has_own_set = set(self._open), True
        return self._open


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
