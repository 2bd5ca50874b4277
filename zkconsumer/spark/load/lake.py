"""Reads the folder of a load by its manifests: the files that contain every published message once, as a frame.

A reader that lists the folder sees files appear and disappear while a run or a compaction is completed. A reader that
uses the manifests sees each message once at any moment, or fails because a file was removed meanwhile, and reads again.

Source: docs/SPARK_LOADING.md, "Readers".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.compaction_manifest import LakeFile, data_files, live_files
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.history import History, staging_folder
from zkconsumer.spark.load.manifest import Manifest
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import DATA_FOLDER, DELTA, ICEBERG, Shape, rows_of_files, settings_of_writing
from zkconsumer.spark.options.offsets_json import are_byte_positions

_TRIES: Final = 20


@dataclass(frozen=True)
class Lake:
    """The content of the folder of a load.

    Attributes:
        last: the last run.
        files: the valid files that are in their places, by path.
        staged: the files of the last run that are still in the staging folder.
    """

    last: Manifest
    files: tuple[LakeFile, ...]
    staged: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The shape of the files."""
        return Shape(
            self.last.format, self.last.partition_by, self.last.text,
            has_places=are_byte_positions(self.last.state.offsets.offsets), has_headers=self.last.headers,
        )  # fmt: skip


def read_lake(storage: Storage, looked: Callable[[int, int], None] = lambda done, total: None) -> Lake:
    """Read which files are valid; nothing is changed.

    Args:
        looked: called with the number of manifests that are read, and the number of all manifests.

    Raises:
        LoadRefused: No load has published here, a manifest cannot be read, or compactions follow each other so fast
            that the folder never stays the same while it is read.
    """
    history, compactions = History(storage), CompactionHistory(storage)
    for _ in range(_TRIES):
        # Compactions are listed before runs, so that the files they have replaced are of runs that are listed. Staged
        # files are listed before those in their places, so that a file that is moved meanwhile is found in one of both.
        before = compactions.numbers()
        numbers = history.numbers()
        if not numbers:
            raise LoadRefused(f"no load has published anything in {storage.folder}")
        runs = []
        for done, number in enumerate(numbers):
            looked(done, len(numbers))
            runs.append(history.read(number))
        done_before = [compactions.read(number) for number in before]
        last = runs[-1]
        in_staging = set(storage.files(staging_folder(last.run, last.run_id)))
        sizes: dict[str, int] = {}
        for name in storage.names(""):
            if name.startswith("topic="):
                sizes |= storage.sizes(name)
        if compactions.numbers() == before:
            files = live_files(runs, done_before, sizes)
            unmoved = set(data_files(last)) - sizes.keys()
            staged = [file.staged for file in last.files if file.final in unmoved and file.staged in in_staging]
            return Lake(last, files, tuple(staged))
    raise LoadRefused(f"another compaction was published in {storage.folder} during each of {_TRIES} reads")


def refuse_table(last: Manifest, folder: str) -> None:
    """Return if the folder contains plain files, and not a table.

    Raises:
        LoadRefused: It contains a table, which has its own list of files.
    """
    advice = {DELTA: f"a Delta table; read and compact it with Delta: OPTIMIZE delta.`{folder}`",
              ICEBERG: "an Iceberg table; read and compact it with Iceberg: rewrite_data_files"}  # fmt: skip
    if last.format in advice:
        raise LoadRefused(f"{folder} is {advice[last.format]} merges small files")


def published_files(spark: Any, folder: str) -> list[str]:
    """The URLs of the files that contain every published message once.

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
