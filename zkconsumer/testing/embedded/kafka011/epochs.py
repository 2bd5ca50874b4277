"""The epochs of a partition's leaders, and where each began. Pure.

File (`leader-epoch-checkpoint`): version 0, number of lines, then `epoch start-offset`.

Source: kafka.server.epoch.LeaderEpochFileCache (2.8).
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final, NamedTuple

__all__ = ["FILE", "UNKNOWN_EPOCH", "LeaderEpochs"]

FILE: Final = "leader-epoch-checkpoint"
UNKNOWN_EPOCH: Final = -1


class _Start(NamedTuple):
    epoch: int
    offset: int


class LeaderEpochs:
    """Where the epochs of a log began.

    Threads: guarded by its log's lock.
    """

    def __init__(self, text: str = "") -> None:
        """Take what a file holds; anything else than such a file is no epoch."""
        self._starts: list[_Start] = []
        for line in text.splitlines()[2:]:
            fields = line.split()
            if len(fields) == 2 and all(field.isdigit() for field in fields):
                self.begin(int(fields[0]), int(fields[1]))

    @property
    def latest(self) -> int:
        """The newest epoch; -1 without one."""
        return self._starts[-1].epoch if self._starts else UNKNOWN_EPOCH

    def text(self) -> str:
        """Return the content of the file."""
        lines = ["0", str(len(self._starts)), *(f"{start.epoch} {start.offset}" for start in self._starts)]
        return "\n".join(lines) + "\n"

    def begin(self, epoch: int, offset: int) -> bool:
        """Return whether an epoch is new; it begins at an offset, and epochs without a message are forgotten."""
        if epoch <= self.latest:
            return False
        self._starts = [*takewhile(lambda start: start.offset < offset, self._starts), _Start(epoch, offset)]
        return True

    def cut(self, end_offset: int) -> None:
        """Forget the epochs from an offset on, behind which everything was lost."""
        self._starts = list(takewhile(lambda start: start.offset < end_offset, self._starts))

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the newest epoch up to the one asked for, and where it ended; -1 and -1 if that is not known.

        Args:
            end_offset: of the log, where its newest epoch ends.
        """
        if epoch == UNKNOWN_EPOCH or not self._starts or epoch > self.latest:
            return UNKNOWN_EPOCH, -1
        if epoch == self.latest:
            return epoch, end_offset
        later = next(start for start in self._starts if start.epoch > epoch)
        earlier = [start.epoch for start in self._starts if start.epoch <= epoch]
        return (earlier[-1] if earlier else epoch), later.offset

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which an offset was written; -1 if it is not known."""
        found = [start.epoch for start in self._starts if start.offset <= offset]
        return found[-1] if found else UNKNOWN_EPOCH
