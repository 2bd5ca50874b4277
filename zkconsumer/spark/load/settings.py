"""What a load is asked to do, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.load.errors import LoadRefused
from zkconsumer.spark.load.event_time import check_event_time
from zkconsumer.spark.load.writing import FORMATS, PARTITIONINGS, Shape
from zkconsumer.spark.offset_spec import TIME_OPTIONS
from zkconsumer.spark.options import SourceOptions, batch_options

__all__ = ["LoadSettings"]

_DECIDED_HERE: Final = {
    **dict.fromkeys(("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"),
                    "a run ends where the logs end when it begins"),
    "failondataloss": "see `allow_loss`",
    "onmessageerror": "what cannot be decoded goes to the side output",
    "assign": "a load takes whole topics",
    "filterpushdown": "a run reads all that it has planned",
}


@dataclass(frozen=True)
class LoadSettings:
    """What to load, and where to.

    Attributes:
        source: Options of `format("zkconsumer")`: `zookeeper.connect`, one of `subscribe`, `subscribePattern` and
            `blacklist`, and what else there is. `startingOffsets`, or a time in its place, is for partitions that were
            never loaded; with `group.id` the offsets are stored in that group, too, once the data is published.
        folder: Path or URL of the folder; any file system that Spark knows.
        shape: Of the files.
        allow_loss: Go on when what was left to be read is not in the logs any more.
        allow_leaderless: Load the others when partitions have no leader, and name them.
        max_messages: Most messages of a run; `None` for all there are.
        allow_gaps: Offsets may be missing in any topic, not in compacted ones alone.

    Raises:
        LoadRefused: The shape is none that there is, or an option is not for a load.
        OptionRefused: An option is wrong.
    """

    source: Mapping[str, str]
    folder: str
    shape: Shape = field(default_factory=lambda: Shape("parquet", "date"))
    allow_loss: bool = False
    allow_gaps: bool = False
    allow_leaderless: bool = True
    max_messages: int | None = None

    def __post_init__(self) -> None:
        _one_of("format", self.shape.format, FORMATS)
        _one_of("partitioning", self.shape.partition_by, PARTITIONINGS)
        if self.shape.event_time is not None:
            check_event_time(self.shape.event_time)
        if self.max_messages is not None and self.max_messages < 1:
            raise LoadRefused(f"max_messages is {self.max_messages}: at least 1 is needed")
        if self.shape.file_bytes is not None and self.shape.file_bytes < 1:
            raise LoadRefused(f"the file size is {self.shape.file_bytes} bytes: at least 1 is needed")
        for name in self.source:
            if name.lower() == "maxbytesperpartition" and self.shape.file_bytes is not None:
                raise OptionRefused(name, "the file size says it already: a file holds what one task has read")
            if name.lower() in _DECIDED_HERE:
                raise OptionRefused(name, f"not for a load: {_DECIDED_HERE[name.lower()]}")
        object.__setattr__(self, "source", dict(self.source))
        self.options()

    def options(self) -> SourceOptions:
        """The options as the source takes them."""
        # A load begins at latest to leave the past out; a batch that did so would be empty, so it is refused there.
        given = dict(self.source)
        starts = [name for name in given if name.lower() == "startingoffsets"]
        if starts and given[starts[0]].strip().lower() == "latest":
            del given[starts[0]]
        return batch_options(given)

    @property
    def starts_at_latest(self) -> bool:
        """True when partitions that were never loaded begin at their end."""
        given = {name.lower(): value.strip().lower() for name, value in self.source.items()}
        has_time = any(name.lower() in given for name in TIME_OPTIONS)
        return given.get("startingoffsets") == "latest" and not has_time


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LoadRefused(f"{what} {value!r} is not known; there are {', '.join(allowed)}")
