"""The compactions of a folder: the last one, the next one, and what a killed one has left unfinished.

    _zkconsumer/compactions/000000003.json                 a published compaction
    _zkconsumer/staging/compaction-000000004-ab12.../      what a compaction writes before it is published
    _zkconsumer/staging/compaction-000000004-ab12.../open  files are not in their places yet, or not removed
    topic=clicks/date=.../000000001-compacted-000000003-... data of published runs, from run 1 on, put together

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from zkconsumer.spark.load.compaction import Compaction
from zkconsumer.spark.load.errors import LoadOvertaken, LoadRefused
from zkconsumer.spark.load.heartbeat import all_dead, make_room
from zkconsumer.spark.load.manifest import run_name, run_number
from zkconsumer.spark.load.storage import Storage

__all__ = ["CompactionHistory", "compaction_folder", "empty_compaction"]

log = logging.getLogger(__name__)

_COMPACTIONS: Final = "_zkconsumer/compactions"
_STAGING: Final = "_zkconsumer/staging"
_PREFIX: Final = "compaction-"
_OPEN: Final = "open"


def empty_compaction(number: int) -> Compaction:
    """A compaction that has put nothing together yet, and begins now."""
    return Compaction(number, uuid.uuid4().hex[:12], datetime.now(UTC).isoformat(timespec="seconds"))


def compaction_folder(compaction: Compaction) -> str:
    """Where a compaction writes; its own, whoever else tries for the same number."""
    return f"{_STAGING}/{_PREFIX}{compaction.name}"


class CompactionHistory:
    """What was published into a folder by compactions.

    Args:
        storage: the folder.
        moved: called with how many files are in their places, and of how many.

    Threads: one at a time; several processes may try, one of them publishes.
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
        """Whether a published compaction has another file in place of this one."""
        return any(path in new.replaced for number in reversed(self.numbers())
                   for new in self.read(number).replacements)  # fmt: skip

    def finish_last(self) -> int | None:
        """Finish the last published compaction if it died before it was done, and return its number in that case.

        Only the last one can be unfinished, as each begins by finishing the one before it.
        """
        numbers = self.numbers()
        if not numbers or not self._folders(f"{_PREFIX}{run_name(numbers[-1])}-"):
            return None
        last = self.read(numbers[-1])
        was_open = self._storage.exists(f"{compaction_folder(last)}/{_OPEN}")
        self.finish(last)
        return last.number if was_open else None

    def finish(self, compaction: Compaction) -> None:
        """Put in their places what files are not there yet, remove those they replace, and what nobody needs any more.

        Each new file comes first, and the old ones go then: what readers of the plain folder may see is a message
        twice, never one missing.
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
            # Somebody else has finished this compaction meanwhile, and a later one has replaced the file.
            if not self.replaces(final):
                raise

    def publish(self, compaction: Compaction) -> None:
        """Make a compaction count, and put its files in their places.

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
        """What to raise when another compaction has published."""
        return LoadOvertaken(f"another compaction has published into {self._storage.folder} meanwhile; nothing of this "
                             "one was published, start it again")

    def replace_dead(self) -> bool:
        """Remove what compactions have left that died before they were published; return whether there were any.

        A compaction of their number is published without anything in it, so that one that only seemed to be dead
        cannot be published any more. Nothing is done while another one works on that number.
        """
        empty = empty_compaction(max(self.numbers(), default=0) + 1)
        folders = self._folders(f"{_PREFIX}{run_name(empty.number)}-")
        if not folders or not all_dead(self._storage, folders):
            return False
        log.warning("%s was left by a compaction that died, and is removed; compaction %d is published as an empty one",
                    ", ".join(map(self._storage.url, folders)), empty.number)
        make_room(self._storage, folders)
        with suppress(LoadOvertaken):  # it was published in the last moment
            self._storage.create(_manifest_path(empty.number), empty.to_json())
        self.finish_last()
        return True

    def _folders(self, prefix: str) -> Collection[str]:
        """The staging folders whose names begin so, those included of which only the notes are there."""
        names = [name for name in self._storage.names(_STAGING) if name.startswith(prefix)]
        return sorted({f"{_STAGING}/{name.partition('.')[0]}" for name in names})

    def _sweep(self, published: int) -> None:
        """Remove the staging folders of compactions whose number is taken."""
        for name in self._storage.names(_STAGING):
            number, _, _ = name.removeprefix(_PREFIX).partition("-")
            if name.startswith(_PREFIX) and number.isdigit() and int(number) <= published:
                self._storage.delete(f"{_STAGING}/{name}")


def _manifest_path(number: int) -> str:
    return f"{_COMPACTIONS}/{run_name(number)}.json"
