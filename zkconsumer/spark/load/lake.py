"""What stands in the folder of a load: the files that hold every published message once, and a frame of them.

A reader who lists the folder sees files come and go while a run or a compaction is finished. Who goes by the manifests
reads each message once at any moment, or fails because a file has gone meanwhile, and reads again.

Source: docs/SPARK_LOADING.md, "Readers".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from zkconsumer.spark.load.compaction import LakeFile, data_files, live_files
from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.errors import LoadRefused
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import DATA_FOLDER, DELTA, ICEBERG, Shape, rows_of_files, settings_of_writing

__all__ = ["Lake", "read_lake", "refuse_table", "published_files", "read_published"]

_TRIES: Final = 20


@dataclass(frozen=True)
class Lake:
    """What stands in the folder of a load.

    Attributes:
        last: the last run.
        files: those that count and are in their places, by path.
        staged: those of the last run that are not, where they are.
    """

    last: Manifest
    files: tuple[LakeFile, ...]
    staged: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """Of the files."""
        return Shape(self.last.format, self.last.partition_by, self.last.text)


def read_lake(storage: Storage, looked: Callable[[int, int], None] = lambda done, total: None) -> Lake:
    """Find out what counts; nothing is changed.

    Args:
        looked: called with how many manifests are read, and of how many.

    Raises:
        LoadRefused: No load has published here, a manifest cannot be read, or compactions follow each other so fast
            that no look is of one moment.
    """
    history, compactions = History(storage), CompactionHistory(storage)
    for _ in range(_TRIES):
        # Compactions before runs: what they have replaced is of runs that are published then. Files that are still
        # aside before those in their places: one that is moved meanwhile is seen in one of both.
        before = compactions.numbers()
        numbers = history.numbers()
        if not numbers:
            raise LoadRefused(f"no load has published anything into {storage.folder}")
        runs = []
        for done, number in enumerate(numbers):
            looked(done, len(numbers))
            runs.append(history.read(number))
        done_before = [compactions.read(number) for number in before]
        last = runs[-1]
        aside = set(storage.files(staging_folder(last.run, last.run_id)))
        sizes: dict[str, int] = {}
        for name in storage.names(""):
            if name.startswith("topic="):
                sizes |= storage.sizes(name)
        if compactions.numbers() == before:
            files = live_files(runs, done_before, sizes)
            final = set(data_files(last))
            staged = [file.staged for file in last.files if file.final in final - sizes.keys() and file.staged in aside]
            return Lake(last, files, tuple(staged))
    raise LoadRefused(f"{storage.folder} has had another compaction published at each of {_TRIES} looks")


def refuse_table(last: Manifest, folder: str) -> None:
    """Return if the folder has files of its own, and not a table's.

    Raises:
        LoadRefused: It has a table, which knows better.
    """
    advice = {DELTA: f"a Delta table, which Delta reads and compacts: OPTIMIZE delta.`{folder}`",
              ICEBERG: "an Iceberg table, which Iceberg reads and compacts: rewrite_data_files"}  # fmt: skip
    if last.format in advice:
        raise LoadRefused(f"{folder} is {advice[last.format]} puts small files together")


def published_files(spark: Any, folder: str) -> list[str]:
    """The URLs of the files that hold every published message once.

    While a run is being finished some of its files are still below `_zkconsumer/staging`.

    Raises:
        LoadRefused: No load has published here, or a manifest cannot be read.
    """
    storage = Storage(spark, folder)
    lake = read_lake(storage)
    refuse_table(lake.last, storage.folder)
    return [storage.url(path) for path in (*(file.path for file in lake.files), *lake.staged)]


def read_published(spark: Any, folder: str) -> Any:
    """A frame of every published message, once.

    A compaction that removes files between this call and an action on the frame makes that action fail; call it again.

    Raises:
        LoadRefused: No load has published here, or a manifest cannot be read.
    """
    storage = Storage(spark, folder)
    lake = read_lake(storage)
    refuse_table(lake.last, storage.folder)
    directories = {"none": "", "date": ", date date", "hour": ", date date, hour int"}[lake.shape.partition_by]
    schema = f"{rows_of_files(lake.shape)}, topic string{directories}"
    frames = []
    staging = f"{staging_folder(lake.last.run, lake.last.run_id)}/{DATA_FOLDER}"
    with settings_of_writing(spark):
        for base, paths in (("", [file.path for file in lake.files]), (staging, lake.staged)):
            if paths:
                reader = spark.read.format(lake.shape.file_format).schema(schema).option("mode", "FAILFAST")
                frames.append(reader.option("basePath", storage.url(base)).load([*map(storage.url, paths)]))
        if not frames:
            return spark.createDataFrame([], schema)
        return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
