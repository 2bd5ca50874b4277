"""Which batches of a log belong to transactions that were aborted or never ended, by the markers in the log. Pure.

A marker may be lost with damaged bytes. The index of aborted transactions next to the segment is a hint then.

Source: kafka.log.TransactionIndex, AbortedTxn (0.11 to 3.9).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from struct import Struct
from typing import Final

from zkconsumer.log.heads import TRANSACTIONAL
from zkconsumer.log.values import ABORT, COMMIT, NO_MARKER, DiskEntry

_LAST: Final = 2**63
_ABORTED: Final = Struct(">hqqqq")


class LoggedTransactions:
    """The transactions of a partition, in the order of its log.

    Attributes:
        open: First offset by producer id of the transactions that have not ended.
    """

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._aborted: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def take(self, entry: DiskEntry) -> None:
        """Take note of an entry, if it belongs to a transaction; entries come in order."""
        if entry.marker == NO_MARKER:
            if entry.attributes & TRANSACTIONAL and entry.magic > 1:
                self.open.setdefault(entry.producer_id, entry.first)
        elif entry.marker in (ABORT, COMMIT):
            first = self.open.pop(entry.producer_id, None)
            if entry.marker == ABORT and first is not None:
                self._aborted[entry.producer_id].append((first, entry.last))

    def take_hint(self, producer_id: int, first: int, last: int) -> None:
        """Take note of an aborted transaction of an index: it began where the index says, also if a marker was lost."""
        found = self._aborted[producer_id]
        for number, (start, end) in enumerate(found):
            if start <= last <= end:
                found[number] = (max(start, first), end)
                return
        insort(found, (first, last))
        if first <= self.open.get(producer_id, -1) <= last:
            del self.open[producer_id]

    def leaves_out(self, entry: DiskEntry) -> bool:
        """Return whether no message of an entry is delivered to a reader of what was committed."""
        if entry.magic <= 1 or not entry.attributes & TRANSACTIONAL:
            return False
        if entry.first >= self.open.get(entry.producer_id, entry.first + 1):
            return True
        found = self._aborted.get(entry.producer_id, [])
        at = bisect_right(found, (entry.first, _LAST)) - 1
        return at >= 0 and entry.first <= found[at][1]


def aborted_of_index(data: bytes) -> list[tuple[int, int, int]]:
    """Return producer id, first and last offset of each aborted transaction of a .txnindex."""
    whole = data[: len(data) // _ABORTED.size * _ABORTED.size]
    return [(producer, first, last) for version, producer, first, last, _ in _ABORTED.iter_unpack(whole)
            if version == 0 and 0 <= first <= last]  # fmt: skip
