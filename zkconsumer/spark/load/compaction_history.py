"""The published compactions of a folder, their completion, and the removal of what dead ones have left.

    _zkconsumer/compactions/000000003.json                 a published compaction
    _zkconsumer/staging/compaction-000000004-ab12.../      what a compaction writes before it is published
    _zkconsumer/staging/compaction-000000004-ab12.../open  its files are not all moved, or replaced ones not removed
    topic=clicks/date=.../000000001-compacted-000000003-... merged data of published runs, from run 1 on

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from zkconsumer.spark.load.compaction_manifest import Compaction
from zkconsumer.spark.load.failures import LoadOvertaken, LoadRefused
from zkconsumer.spark.load.heartbeat import all_dead, make_room
from zkconsumer.spark.load.manifest import run_name, run_number
from zkconsumer.spark.load.storage import Storage

log = logging.getLogger(__name__)
_COMPACTIONS: Final = "_zkconsumer/compactions"
_STAGING: Final = "_zkconsumer/staging"
_PREFIX: Final = "compaction-"
_OPEN: Final = "open"


def empty_compaction(number: int) -> Compaction:
    """A compaction that starts now and has not merged any files yet."""
    return Compaction(number, uuid.uuid4().hex[:12], datetime.now(UTC).isoformat(timespec="seconds"))


def compaction_folder(compaction: Compaction) -> str:
    """The folder into which a compaction writes. No other one writes there, even if it has the same number."""
    return f"{_STAGING}/{_PREFIX}{compaction.name}"


class CompactionHistory:
    """The compactions published into a folder.

    Args:
        storage: the folder.
        moved: called with the number of files that are in their places, and the number of all files.

    Threads: one at a time; several processes may try to publish, one of them succeeds.
    """

    def __init__(self, storage: Storage, moved: Callable[[int, int], None] = lambda done, total: None) -> None:
        self._storage = storage
        self._moved = moved

    def numbers(self) -> list[int]:
        """The numbers of the published ones, in order."""
        names = self._storage.names(_COMPACTIONS)
        return sorted(number for name in names if (number := run_number(name)) is not None)

    def read(self, number: int) -> Compaction:
        """A published compaction.

        Raises:
            LoadRefused: It cannot be read.
        """
        path = _manifest_path(number)
        return Compaction.from_json(self._storage.url(path), self._storage.read_text(path))

    def replaces(self, path: str) -> bool:
        """Whether a published compaction has replaced this file."""
        return any(path in new.replaced for number in reversed(self.numbers())
                   for new in self.read(number).replacements)  # fmt: skip

    def finish_last(self) -> int | None:
        """Finish the last published compaction if it died before it was done, and return its number in that case.

        Only the last one can be unfinished, because each one starts by finishing the one before it.
        """
        numbers = self.numbers()
        if not numbers or not self._folders(f"{_PREFIX}{run_name(numbers[-1])}-"):
            return None
        last = self.read(numbers[-1])
        was_open = self._storage.exists(f"{compaction_folder(last)}/{_OPEN}")
        self.finish(last)
        return last.number if was_open else None

    def finish(self, compaction: Compaction) -> None:
        """Move the remaining files to their places, remove the files that they replace, and the staging folders.

        Each new file is moved before the old ones are removed: a reader that lists the folder may see a message twice,
        but never misses one.
        """
        if self._storage.exists(f"{compaction_folder(compaction)}/{_OPEN}"):
            total = len(compaction.replacements)
            for done, new in enumerate(compaction.replacements):
                self._moved(done, total)
                self._put(new.staged, new.final)
                for old in new.replaced:
                    self._storage.delete(old)
            self._moved(total, total)
        self._sweep(compaction.number)

    def _put(self, staged: str, final: str) -> None:
        try:
            self._storage.move(staged, final)
        except LoadRefused:
            # Another process has finished this compaction meanwhile, and a later one has replaced the file.
            if not self.replaces(final):
                raise

    def publish(self, compaction: Compaction) -> None:
        """Publish a compaction, and move its files to their places.

        Raises:
            LoadOvertaken: Another one of this number was published; nothing of this one counts.
        """
        self._storage.overwrite(f"{compaction_folder(compaction)}/{_OPEN}", "")
        try:
            self._storage.create(_manifest_path(compaction.number), compaction.to_json())
        except LoadOvertaken:
            self._storage.delete(compaction_folder(compaction))
            raise self.overtaken() from None
        self.finish(compaction)

    def overtaken(self) -> LoadOvertaken:
        """The error to raise when another compaction has published."""
        return LoadOvertaken(
            f"another compaction has published in {self._storage.folder} in the meantime; nothing "
            "of this compaction was published",
            remedy="start it again",
        )

    def replace_dead(self) -> bool:
        """Remove what compactions have left that died before they were published; return whether there were any.

        An empty compaction of their number is published, so that one that only seemed to be dead can no longer be
        published. Nothing is done while another one works on that number.
        """
        empty = empty_compaction(max(self.numbers(), default=0) + 1)
        folders = self._folders(f"{_PREFIX}{run_name(empty.number)}-")
        if not folders or not all_dead(self._storage, folders):
            return False
        log.warning(
            "%s was left by a compaction that was killed, and is removed; compaction %d is published as an empty one",
            ", ".join(map(self._storage.url, folders)),
            empty.number,
        )
        make_room(self._storage, folders)
        with suppress(LoadOvertaken):  # it was published at the last moment
            self._storage.create(_manifest_path(empty.number), empty.to_json())
        self.finish_last()
        return True

    def _folders(self, prefix: str) -> Collection[str]:
        """The staging folders with this prefix, also those of which only the heartbeat is there."""
        names = [name for name in self._storage.names(_STAGING) if name.startswith(prefix)]
        return sorted({f"{_STAGING}/{name.partition('.')[0]}" for name in names})

    def _sweep(self, published: int) -> None:
        """Remove the staging folders of compactions whose number is published."""
        for name in self._storage.names(_STAGING):
            number, _, _ = name.removeprefix(_PREFIX).partition("-")
            if name.startswith(_PREFIX) and number.isdigit() and int(number) <= published:
                self._storage.delete(f"{_STAGING}/{name}")


def _manifest_path(number: int) -> str:
    return f"{_COMPACTIONS}/{run_name(number)}.json"
