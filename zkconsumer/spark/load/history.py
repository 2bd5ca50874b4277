"""The published runs of a folder, their completion, and the removal of what dead runs have left.

    _zkconsumer/runs/000000012.json          a published run
    _zkconsumer/runs/000000012.appended      the rows of that run are in the table
    _zkconsumer/staging/000000013-ab12.../   the files of a run before it is published; its `heartbeat` is next to it
    topic=clicks/date=.../...parquet         data of published runs
    _bad/000000012-...json                   messages that could not be decoded

Spark and other readers ignore names that begin with `_`.

Source: docs/SPARK_LOADING.md, "Files of a load".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.failures import LoadOvertaken, LoadRefused
from zkconsumer.spark.load.heartbeat import all_dead, make_room
from zkconsumer.spark.load.manifest import Manifest, StagedFile, run_name, run_number
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import BAD_FOLDER, DATA_FOLDER

log = logging.getLogger(__name__)

Append = Callable[[Manifest, Callable[[], bool]], None]
"""Appends the rows of a run. Its second argument returns True if another load has appended them meanwhile."""

_EARLIER: Final = 100
_RUNS = "_zkconsumer/runs"
_STAGING = "_zkconsumer/staging"


def staging_folder(run: int, run_id: str) -> str:
    """The folder into which a run writes. No other run writes there, even if it has the same number."""
    return f"{_STAGING}/{run_name(run)}-{run_id}"


class History:
    """The runs published into a folder.

    Args:
        storage: the folder.
        moved: called with the number of files that are in their places, and the number of all files.
        append: appends the rows of a run to the table, if there is one.

    Threads: one at a time; several processes may try to publish, one of them succeeds.
    """

    def __init__(
        self,
        storage: Storage,
        moved: Callable[[int, int], None] = lambda done, total: None,
        append: Append | None = None,
    ) -> None:
        self._storage = storage
        self._moved = moved
        self._append = append

    def last(self) -> Manifest | None:
        """The last published run, `None` before the first.

        Raises:
            LoadRefused: its manifest cannot be read.
        """
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def numbers(self) -> list[int]:
        """The numbers of the published runs, in order."""
        names = self._storage.names(_RUNS)
        return sorted(number for name in names if (number := run_number(name)) is not None)

    def read(self, run: int) -> Manifest:
        """A published run.

        Raises:
            LoadRefused: its manifest cannot be read.
        """
        path = _manifest_path(run)
        found = Manifest.from_json(self._storage.url(path), self._storage.read_text(path))
        if found.run != run:
            raise LoadRefused(
                f"{self._storage.url(path)} belongs to run {found.run}",
                remedy="restore the right file, or load into another folder",
            )
        return found

    def earlier(self) -> Iterator[Manifest]:
        """The runs before the last one, the latest first, up to one that cannot be read; a hundred at most."""
        for number in self.numbers()[::-1][1 : _EARLIER + 1]:
            try:
                yield self.read(number)
            except LoadRefused:
                return

    def replace_dead(self, empty: Manifest) -> Manifest | None:
        """Remove what loads have left that died before they published the next run.

        That run is published empty, so that a load that only seemed to be dead can no longer publish it. If it has
        published at the last moment, its run is the last one. Nothing is done while another load works on that run.
        Return the last run if there were dead loads.

        Args:
            empty: a run that has read nothing, with the number that the next one would have.
        """
        folders = self._staged(empty.run)
        if not folders or not all_dead(self._storage, folders):
            return None
        log.warning(
            "%s was left by a load that was killed, and is removed; run %d is published as an empty one",
            ", ".join(map(self._storage.url, folders)),
            empty.run,
        )
        make_room(self._storage, folders)
        with suppress(LoadOvertaken):
            self._storage.create(_manifest_path(empty.run), empty.to_json())
        last = self.last()
        if last is not None:
            self.finish(last)  # if it has files, they are moved to their places before anything is removed
        return last

    def _staged(self, run: int) -> list[str]:
        """The staging folders of a run, also those of which only the heartbeat is there."""
        names = [name for name in self._storage.names(_STAGING) if name.startswith(f"{run_name(run)}-")]
        return sorted({f"{_STAGING}/{name.partition('.')[0]}" for name in names})

    def publish(self, manifest: Manifest) -> None:
        """Publish a run, and move its files to their places.

        Raises:
            LoadOvertaken: another load has published a run of this number; nothing of this one counts.
        """
        self._storage.create(_manifest_path(manifest.run), manifest.to_json())
        self.finish(manifest)

    def finish(self, manifest: Manifest) -> None:
        """Move the remaining files of the last published run to their places, and remove what belongs to no run.

        Only the last run can be unfinished, because each run starts by finishing the one before it.
        """
        staged = staging_folder(manifest.run, manifest.run_id)
        if self._storage.exists(staged):
            files = [file for file in manifest.files if file.final]
            for number, file in enumerate(files):
                self._moved(number, len(files))
                self._put(file)
            self._moved(len(files), len(files))
        if self._append is not None and not all(file.final for file in manifest.files):
            self._append_once(manifest, self._append)
        self._sweep(manifest.run)

    def _put(self, file: StagedFile) -> None:
        try:
            self._storage.move(file.staged, file.final)
        except LoadRefused:
            # Another process has finished this run meanwhile, and a compaction has replaced the file.
            if not CompactionHistory(self._storage).replaces(file.final):
                raise

    def _append_once(self, manifest: Manifest, append: Append) -> None:
        """Append the rows of a run to the table, then write the mark that allows its files to be removed.

        If a load dies between append and mark, the next one finds in the table itself that it has the run.
        """
        mark = f"{_RUNS}/{run_name(manifest.run)}.appended"
        if self._storage.exists(mark):
            return
        append(manifest, lambda: self._storage.exists(mark))
        try:
            self._storage.create(mark, f"{manifest.run_id}\n")
        except LoadOvertaken:
            return  # another load has finished the run at the same time

    def _sweep(self, published: int) -> None:
        """Remove the staging folders of runs whose number is published: they died, or can no longer be published."""
        for name in self._storage.names(_STAGING):
            number, _, _ = name.partition("-")
            if number.isdigit() and int(number) <= published:
                self._storage.delete(f"{_STAGING}/{name}")

    def staged_files(self, run: int, run_id: str, into_table: bool = False) -> tuple[StagedFile, ...]:
        """The files that a run has written, and the places to which they are moved.

        Names start with the number of the run, to show where a file comes from.

        Args:
            into_table: the rows of messages are appended to the table.
        """
        folder = staging_folder(run, run_id)
        found = []
        for path in self._storage.files(folder):
            kind, _, below = path[len(folder) + 1 :].partition("/")
            place, _, name = below.rpartition("/")
            # Spark's own markers, such as _SUCCESS.
            if name.startswith(("_", ".")) or kind not in (DATA_FOLDER, BAD_FOLDER):
                continue
            if into_table and kind == DATA_FOLDER:
                found.append(StagedFile(path, ""))
                continue
            name = f"{run_name(run)}-{name}"
            home = BAD_FOLDER if kind == BAD_FOLDER else place
            found.append(StagedFile(path, f"{home}/{name}" if home else name))
        return tuple(found)


def _manifest_path(run: int) -> str:
    return f"{_RUNS}/{run_name(run)}.json"
