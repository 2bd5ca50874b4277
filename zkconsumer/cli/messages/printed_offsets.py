"""Commits printed messages: none whose line is not written yet, and at a handover every one whose line is.

The connector counts a message as done when the next one is asked for; its line may still be in a buffer then. So the
auto-commit of the connector is off, and this class commits instead, every `auto.commit.interval.ms`.
"""

from __future__ import annotations

import logging
import threading

from rebalance.member_partition import by_reason
from simpleconsumer.types import TopicPartition
from zkconsumer.cli.messages.line_output import LineOutput
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import CommitFailed, ConnectorClosed

__all__ = ["PrintedOffsets"]

log = logging.getLogger(__name__)

_FLUSH_S = 1.0
"""Longest wait at a handover for a reader of the lines that is slow."""


class PrintedOffsets:
    """The rebalance listener of `zkconsumer consume`, and its commits.

    Args:
        output: Knows what was printed.
        interval_s: Time between two commits, in seconds; None: never commit.

    Threads: Any.
    """

    def __init__(self, output: LineOutput, interval_s: float | None) -> None:
        self._output = output
        self._interval_s = interval_s
        self._connector: ConsumerConnector | None = None
        self._lock = threading.Lock()
        self._stored: dict[TopicPartition, int] = {}
        self._stop = threading.Event()

    def attach(self, connector: ConsumerConnector) -> None:
        """Commit through this connector; called before it creates streams."""
        self._connector = connector
        if self._interval_s is not None:
            threading.Thread(target=self._run, args=(self._interval_s,), name="commit-printed", daemon=True).start()

    def stop(self) -> None:
        """End the periodic commits."""
        self._stop.set()

    def _run(self, interval_s: float) -> None:
        while not self._stop.wait(interval_s):
            for names, reason in by_reason(self._failed()):
                log.warning("offset of %s is not committed: %s", names, reason)

    # -- the listener ------------------------------------------------------------------------------------------------

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        """Store the positions at which the partitions start: the next owner must not choose a start of its own."""
        self._output.flush(_FLUSH_S)
        for partition in positions:
            self._output.forget(partition)
        with self._lock:
            self._stored.update(positions)
        if self._interval_s is not None and self._connector is not None:
            try:
                self._connector.commit_offsets(positions)
            except (CommitFailed, ConnectorClosed) as error:
                log.warning("first positions: %s", error)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Print and commit what was delivered of the partitions, so that the next owner goes on behind it."""
        # A closed output was flushed already, or its reader hangs: do not wait for it a second time.
        self._output.flush(0.0 if self._output.is_closed else _FLUSH_S)
        for names, reason in by_reason(self._failed(partitions)):
            log.warning("offset of %s is not committed, messages may be delivered again: %s", names, reason)
        self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Forget partitions that another member owns now."""
        with self._lock:
            for partition in partitions:
                self._stored.pop(partition, None)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _failed(self, partitions: list[TopicPartition] | None = None) -> dict[tuple[str, int | str], str]:
        return {(name.topic, name.partition): str(reason) for name, reason in self.commit(partitions).items()}

    def commit(self, partitions: list[TopicPartition] | None = None) -> dict[TopicPartition, object]:
        """Commit the printed messages of some partitions, or of all; return those that failed, with reasons."""
        if self._connector is None or self._interval_s is None:
            return {}
        printed = self._output.printed()
        with self._lock:
            # A partition may have been lost and claimed again: what was printed before that is behind its new start.
            wanted = {
                partition: printed[partition]
                for partition, stored in self._stored.items()
                if printed.get(partition, -1) > stored and (partitions is None or partition in partitions)
            }
        if not wanted:
            return {}
        failed: dict[TopicPartition, object] = {}
        try:
            self._connector.commit_offsets(wanted)
        except CommitFailed as error:
            failed = {TopicPartition(*partition): reason for partition, reason in error.reasons.items()}
        except ConnectorClosed as error:
            failed = dict.fromkeys(wanted, error)
        with self._lock:
            for partition, offset in wanted.items():
                if partition in self._stored and partition not in failed:
                    self._stored[partition] = offset
            return {partition: reason for partition, reason in failed.items() if partition in self._stored}
