"""Writes the leaves of one lane into the state topic, and deletes those that nobody can need any more.

Leaves never stop or delay a lane for long: what cannot be written is tried again later, and is a gap in the end.

Threads: that of the lane.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Final

from simpleconsumer.dialect import Dialect, head_with
from zkconsumer.mirror.lane_leaves import DECODED, LEAF_OFFSETS, CopiedRange, LeafNotes, batch_digest
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.pieces import CopiedBatch, codec_bit, records_section
from zkconsumer.mirror.state_log import StateLog
from zkconsumer_error import ZkConsumerError

log = logging.getLogger(__name__)

PRUNE_S: Final = 3600.0
_MOST_DELETED: Final = 1000


class LeafWriter:
    """The leaves of one lane.

    Args:
        lane: The lane.
        state: Where they are stored.
        log_starts: Returns where the logs of both sides start, as offsets of the source; None if that is not known.
        is_on: Whether leaves are written; they prove nothing where the target removes records by compaction.
    """

    def __init__(
        self, lane: Lane, state: StateLog, log_starts: Callable[[], tuple[int, int] | None], *, is_on: bool
    ) -> None:
        self._lane = lane
        self._state = state
        self._log_starts = log_starts
        self._is_on = is_on
        self._notes = LeafNotes(lane, _new_writer(), time.monotonic())
        self._prune_at = time.monotonic() + PRUNE_S
        self._pruned_to = 0

    def takes(self, dialect: Dialect) -> bool:
        """Return whether leaves are written of what is fetched in a dialect.

        Offsets of Kafka 0.7 are bytes, of which several messages may share one: these have none.
        """
        return self._is_on and not dialect.has_byte_positions

    def sent(self, piece: CopiedBatch, target_first: int) -> None:
        """Take note of a batch that was sent."""
        size_bytes, codecs, digests = len(piece.data), DECODED, piece.digests
        if piece.is_whole:
            head = head_with(piece.data, piece.first_offset)
            assert head is not None
            section = records_section(piece.data)
            size_bytes, codecs, digests = len(section), codec_bit(head), batch_digest(section)
        self._notes.sent(
            CopiedRange(piece.first_offset, target_first, piece.records, size_bytes, codecs, digests)
        )  # fmt: skip

    def acknowledge(self, target_end: int | None) -> None:
        """Take note of what the target has stored; write what is due."""
        if target_end is not None:
            self._notes.acknowledge(target_end)
        self._write(is_end=False)
        if time.monotonic() >= self._prune_at:
            self._prune()

    def restart(self) -> None:
        """The lane goes on at another position."""
        self._notes.restart(_new_writer())

    def end(self) -> None:
        """Write what is not written yet; the lane has ended."""
        self._write(is_end=True)

    def _write(self, *, is_end: bool) -> None:
        records = self._notes.due(time.monotonic(), is_end=is_end)
        if not records:
            return
        try:
            self._state.put([record.encoded() for record in records])
        except ZkConsumerError as error:
            log.info("mirror: lane %s: its leaves are not written now: %s", self._lane.place, error)
            self._notes.put_off(time.monotonic())
        else:
            self._notes.written(records, time.monotonic())

    def _prune(self) -> None:
        """Delete the records whose offsets are before the starts of both logs."""
        self._prune_at = time.monotonic() + PRUNE_S
        try:
            starts = self._log_starts()
            if starts is None or min(starts) < self._pruned_to + LEAF_OFFSETS:
                return
            found = self._state.leaves_of(self._lane)
            old = [key for key, record in found.items() if record.parts[-1].end <= min(starts)]
            for index in range(0, len(old), _MOST_DELETED):
                self._state.put([(key, None) for key in old[index : index + _MOST_DELETED]])
            self._pruned_to = min(starts)
        except ZkConsumerError as error:
            log.info("mirror: lane %s: its old leaves are not deleted now: %s", self._lane.place, error)


def _new_writer() -> str:
    return uuid.uuid4().hex[:12]
