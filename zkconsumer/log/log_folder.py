"""Finds the logs of partitions in the data folders of brokers: `open_log`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal

from simpleconsumer.types import Message
from zkconsumer.log.checkpoints import (
    CHECKPOINTS,
    Checkpoint,
    SegmentName,
    epochs_of,
    folder_name,
    is_known,
    offsets_of,
    segment_name,
)
from zkconsumer.log.partition_log import DiskPartition, DiskSegment
from zkconsumer.log.reading import LogReading
from zkconsumer.log.segment_file import STOP_IT, read_hint
from zkconsumer.log.values import Damage, Gap, LogFailed

log = logging.getLogger(__name__)

_ENTRIES = ("log", "kafka")


class DiskLog:
    """The logs of partitions in some folders, as `open_log` returns it.

    Attributes:
        partitions: All logs, by topic and partition; those of folders that are no longer, or not yet, a partition's
            have a `state`.
    """

    def __init__(self, partitions: Iterable[DiskPartition]) -> None:
        self.partitions = tuple(sorted(partitions, key=lambda each: (each.topic, each.partition, each.state)))

    @property
    def topics(self) -> list[str]:
        """The topics of which there is a log."""
        return sorted({each.topic for each in self.partitions if not each.state})

    def select(self, topic: str | None = None, partitions: Iterable[int] = ()) -> list[DiskPartition]:
        """Return the logs of a topic, or of some of its partitions.

        Raises:
            LogFailed: There is no such topic or partition, or a partition is there twice.
        """
        found = [each for each in self.partitions if not each.state and topic in (None, each.topic)]
        if topic is not None and not found:
            known = ", ".join(self.topics[:20]) or "none"
            raise LogFailed(f"there is no log of topic {topic!r}", f"topics with a log: {known}")
        chosen = set(partitions)
        if missing := chosen - {each.partition for each in found}:
            raise LogFailed(f"there is no log of {topic}-{min(missing)}")
        found = [each for each in found if not chosen or each.partition in chosen]
        for one, other in pairwise(found):
            if (one.topic, one.partition) == (other.topic, other.partition):
                raise LogFailed(f"{one.topic}-{one.partition} is in {one.folder} and in {other.folder}",
                                "give the folders of one broker at a time")  # fmt: skip
        return found

    def read_topic(
        self,
        topic: str,
        partitions: Iterable[int] = (),
        *,
        start: int | Mapping[int, int] | None = None,
        end: int | Mapping[int, int] | None = None,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        broker_id: int = 0,
    ) -> Iterator[Message[bytes, bytes]]:
        """Yield the messages of a topic, one partition after the other; reading continues after damage.

        Damage and gaps are logged as warnings. `LogReading` yields them instead.

        Args:
            partitions: Numbers of the partitions to read; none for all.
            start, end: First offset, and offset after the last one, of all partitions or by partition.
            isolation_level: `read_committed` leaves out messages of transactions that were aborted or never ended.
            broker_id: Kafka 0.7: the broker whose logs these are; partitions are named after it.

        Raises:
            LogFailed: There is no such topic or partition; or a file cannot be read, or changes meanwhile.
        """
        for found in self.select(topic, partitions):
            reading = LogReading(
                found, partition_of(found, broker_id), start=_of(start, found.partition), end=_of(end, found.partition),
                read_committed=isolation_level == "read_committed",
            )  # fmt: skip
            for event in reading.events():
                if isinstance(event, Message):
                    yield event
                elif (isinstance(event, Gap) and event.kind.is_loss) or isinstance(event, Damage):
                    log.warning("%s-%d: %s", found.topic, found.partition, event)


def partition_of(found: DiskPartition, broker_id: int) -> int | str:
    """Return what messages of a log have as their partition."""
    return f"{broker_id}-{found.partition}" if found.is_07 else found.partition


def _of(given: int | Mapping[int, int] | None, partition: int) -> int | None:
    return given.get(partition) if isinstance(given, Mapping) else given


def open_log(*folders: str | os.PathLike[str]) -> DiskLog:
    """Return the logs in data folders of a broker, or in folders of single partitions; no broker is needed.

    Files are opened for reading only, and not before they are read.

    Args:
        folders: Those of `log.dirs`, or copies of them; or folders such as `clicks-3`.

    Raises:
        LogFailed: A folder is not there, cannot be listed, or has no log.
    """
    found: list[DiskPartition] = []
    for folder in map(Path, folders):
        names = _names(folder)
        own = folder_name(folder.resolve().name)
        if own is not None and any(_is_segment(name) for name in names):
            partition = _partition_log(folder, names, own.topic, own.partition, own.state,
                                       _checkpoints(folder.resolve().parent))  # fmt: skip
            found.append(partition)
            continue
        checkpoints = _checkpoints(folder)
        here = []
        for name in names:
            part = folder_name(name)
            if part is not None and (folder / name).is_dir():
                here.append(_partition_log(folder / name, _names(folder / name), part.topic, part.partition, part.state,
                                           checkpoints))  # fmt: skip
        if not here:
            raise LogFailed(f"{folder} has no log", "give a folder of log.dirs, with folders such as clicks-0 in it")
        found += here
    return DiskLog(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise LogFailed(f"{folder} cannot be listed: {error.strerror or error}") from error


def _is_segment(name: str) -> bool:
    found = segment_name(name)
    return found is not None and found.kind in _ENTRIES and not found.state


def _checkpoints(folder: Path) -> dict[str, dict[tuple[str, int], int]]:
    return {
        field: offsets_of(read_hint(folder / name).decode("utf-8", "replace")) for field, name in CHECKPOINTS.items()
    }


def _partition_log(
    folder: Path, names: list[str], topic: str, partition: int, state: str,
    checkpoints: Mapping[str, Mapping[tuple[str, int], int]],
) -> DiskPartition:  # fmt: skip
    segments: list[DiskSegment] = []
    swapped: list[DiskSegment] = []
    replaced: list[Path] = []
    foreign: list[Path] = []
    indexes: set[int] = set()
    gone: set[int] = set()
    for name in names:
        path, found = folder / name, segment_name(name)
        if found is None:
            if not is_known(name):
                foreign.append(path)
        elif found.kind in _ENTRIES:
            segment = DiskSegment(found, path, _size(path))
            if found.state == "swap":
                swapped.append(segment)
            elif found.state:
                replaced.append(path)
                gone.add(found.base)
            else:
                segments.append(segment)
        elif found.kind in ("index", "timeindex") and not found.state:
            indexes.add(found.base)
    # A broker that was killed while it replaced segments by a cleaned one leaves that one under this suffix.
    bases = {segment.name.base for segment in segments}
    for segment in swapped:
        if segment.name.base in bases:
            replaced.append(segment.path)
        else:
            segments.append(segment._replace(name=SegmentName(segment.name.base, segment.name.kind, "")))
    segments.sort(key=lambda segment: segment.name.base)
    orphans = sorted(indexes - {segment.name.base for segment in segments} - gone)
    values = {field: found.get((topic, partition)) for field, found in checkpoints.items()}
    return DiskPartition(
        topic, partition, folder, state=state, segments=segments, replaced=replaced, orphans=orphans, foreign=foreign,
        checkpoint=Checkpoint(**values),
        epochs=epochs_of(read_hint(folder / "leader-epoch-checkpoint").decode("utf-8", "replace")),
    )  # fmt: skip


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise LogFailed(f"{path} no longer exists", STOP_IT) from error
