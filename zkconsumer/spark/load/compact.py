"""Compaction of the folder of a load: small files put together, each message still there once.

    finish the last run and the last compaction -> look -> group -> write aside -> compare -> publish -> finish
    (each new file into its place, and then away with those it replaces)

Until it is published, nothing of a compaction counts, and whatever ends it costs its work alone. Loads go on beside it.

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from zkconsumer.spark.load.compaction import Compaction, Replacement, data_files
from zkconsumer.spark.load.compaction_files import compare_groups, rewrite_groups, written_groups
from zkconsumer.spark.load.compaction_groups import Group, plan_groups, portions_of
from zkconsumer.spark.load.compaction_history import CompactionHistory, compaction_folder, empty_compaction
from zkconsumer.spark.load.errors import LoadRefused
from zkconsumer.spark.load.heartbeat import Heartbeat
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.job_progress import Tell, watched_jobs
from zkconsumer.spark.load.lake import read_lake, refuse_table
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import DATA_FOLDER, Shape

__all__ = ["CompactionReport", "CompactionSettings", "run_compactions"]

_PORTION_BYTES: Final = 8 * 1024**3
"""Of the files that one compaction puts together: what a death costs at most, and what is needed of the disk."""
_PORTION_FILES: Final = 10_000


@dataclass(frozen=True)
class CompactionSettings:
    """What to put together.

    Attributes:
        folder: path or URL of the folder of a load.
        file_bytes: of a new file, at most, by the sizes of those it replaces.
        compression: of the new files; a name that Spark knows for the format, or None for its default.

    Raises:
        LoadRefused: The size is none.
    """

    folder: str
    file_bytes: int = 128 * 1024**2
    compression: str | None = None

    def __post_init__(self) -> None:
        if self.file_bytes < 1:
            raise LoadRefused(f"the file size is {self.file_bytes} bytes: at least 1 is needed")


@dataclass(frozen=True)
class CompactionReport:
    """What a compaction came to.

    Attributes:
        compaction: its number, `None` when there was nothing to put together.
        files_before, bytes_before: what was replaced; all files of the folder when nothing was.
        files_after, bytes_after: what replaces it.
        messages: in these.
        left: how many files are left to the compactions behind this one.
    """

    folder: str
    compaction: int | None
    files_before: int
    bytes_before: int
    files_after: int = 0
    bytes_after: int = 0
    messages: int = 0
    left: int = 0
    seconds: float = 0.0


def run_compactions(
    spark: Any, settings: CompactionSettings, tell: Tell = lambda what, done, total: None
) -> Iterator[CompactionReport]:
    """Put small files together, in portions that are published one after the other, and yield what each came to.

    Args:
        spark: a session with a driver of its own.
        tell: called with a word for the step, and how much of it is done of how much.

    Raises:
        LoadRefused: No load has published there, or it has a table.
        AuditFailed: What was written is not what was there.
        LoadOvertaken: Another compaction has published meanwhile. What was yielded before is published.
    """
    began_s = time.monotonic()
    storage = Storage(spark, settings.folder)
    compactions = CompactionHistory(storage, lambda done, total: tell("publishing", done, total))
    unsettled = _finish_others(storage, compactions, tell)
    lake = read_lake(storage, lambda done, total: tell("looking", done, total))
    groups = plan_groups((file for file in lake.files if file.path not in unsettled), settings.file_bytes)
    number = max(compactions.numbers(), default=0)
    if not groups:
        size_bytes = sum(file.size_bytes for file in lake.files)
        yield CompactionReport(storage.folder, None, len(lake.files), size_bytes, seconds=time.monotonic() - began_s)
    left = sum(map(len, groups))
    shape = lake.shape._replace(compression=settings.compression)
    for portion in portions_of(groups, _PORTION_BYTES, _PORTION_FILES):
        number += 1
        left -= sum(map(len, portion))
        yield _compacted(spark, storage, compactions, empty_compaction(number), portion, shape, left, tell, began_s)
        began_s = time.monotonic()


def _finish_others(storage: Storage, compactions: CompactionHistory, tell: Tell) -> set[str]:
    """Finish what was published, and return the files that somebody else may still be moving into their places."""
    history = History(storage, lambda done, total: tell("publishing", done, total))
    last = history.last()
    if last is None:
        raise LoadRefused(f"no load has published anything into {storage.folder}")
    refuse_table(last, storage.folder)
    unsettled: set[str] = set()
    if storage.exists(staging_folder(last.run, last.run_id)):
        unsettled.update(data_files(last))
        history.finish(last)
    unfinished = compactions.finish_last()
    if unfinished is not None:
        unsettled.update(new.final for new in compactions.read(unfinished).replacements)
    compactions.replace_dead()
    return unsettled


def _compacted(
    spark: Any, storage: Storage, compactions: CompactionHistory, empty: Compaction, groups: Sequence[Group],
    shape: Shape, left: int, tell: Tell, began_s: float,
) -> CompactionReport:
    """Put groups together and publish that."""
    folder = compaction_folder(empty)
    to = f"{folder}/{DATA_FOLDER}"
    with Heartbeat(storage, folder):
        try:
            with watched_jobs(spark, "rewriting", tell):
                rewrite_groups(spark, storage, groups, shape, to)
            written = written_groups(storage, to, len(groups))
            with watched_jobs(spark, "comparing", tell):
                messages = compare_groups(spark, storage, groups, shape, to)
            sizes = storage.sizes(to)
            storage.sync(written)  # what it replaces is removed
        except BaseException as error:
            with suppress(Exception):  # what happened before is what counts; a later compaction removes the rest
                storage.delete(folder)
            if isinstance(error, Exception) and max(compactions.numbers(), default=0) >= empty.number:
                raise compactions.overtaken() from error
            raise
        compactions.publish(replace(empty, replacements=_replacements(empty, written, groups)))
    before = [file.size_bytes for group in groups for file in group]
    return CompactionReport(
        storage.folder, empty.number, len(before), sum(before), len(written), sum(sizes[path] for path in written),
        messages, left, time.monotonic() - began_s,
    )  # fmt: skip


def _replacements(
    compaction: Compaction, written: Sequence[str], groups: Sequence[Group]
) -> tuple[Replacement, ...]:
    found = []
    for number, (staged, group) in enumerate(zip(written, groups, strict=True)):
        # It begins with the number of the first run in it, so that names keep to the order of the messages.
        first = group[0].path.rpartition("/")[2].partition("-")[0]
        kind = staged.rpartition("/")[2].partition(".")[2]
        final = f"{group[0].directory}/{first}-compacted-{compaction.name}-{number:05}.{kind}"
        found.append(Replacement(staged, final, tuple(file.path for file in group)))
    return tuple(found)
