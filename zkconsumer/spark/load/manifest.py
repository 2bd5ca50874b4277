"""The manifest of a run: which files it brought, and from where the next one goes on.

A run is published by the one act of creating `_zkconsumer/runs/<number>.json`. Offsets and data cannot disagree,
since both stand in that file. The data files are put in their places behind it; if that breaks off, the next run
finishes it.

Source: docs/SPARK.md, "What a load leaves behind".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from zkconsumer.spark.load.errors import LoadRefused

__all__ = ["VERSION", "LoadedPartition", "Manifest", "StagedFile", "run_name", "run_number"]

VERSION: Final = 1
"""Of the format; a reader refuses those it does not know."""
_DIGITS: Final = 9
_NAME = re.compile(rf"([0-9]{{{_DIGITS},}})\.json")


class StagedFile(NamedTuple):
    """One file of a run, by paths within the folder of the load.

    Attributes:
        staged: where the run wrote it.
        final: where it belongs; empty when its rows belong into the Delta table.
    """

    staged: str
    final: str


@dataclass(frozen=True)
class LoadedPartition:
    """What a run brought of one partition.

    Attributes:
        start: first offset that was asked for.
        end: the offset behind the last one; the next run begins there.
        messages: rows that were written.
        bytes: of their keys and values.
        bad: messages in the side output.
        missing: offsets in between that no message has: a compacted log, or transaction marks.
    """

    topic: str
    partition: int
    start: int
    end: int
    messages: int
    bytes: int
    bad: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Manifest:
    """What one run has done, and where the next one begins.

    Attributes:
        run: number, from 1.
        run_id: tells this run from another that tried for the same number.
        began_at: UTC, ISO 8601.
        ends: by topic and partition, everything ever loaded into this folder.
        births: by topic, the transaction in which ZooKeeper saw it created: tells a topic from a later one of its name.
        partitions: what this run brought.
        files: what it brought it in.
        history_id: tells the runs of this folder from those of all others; of a Delta table alone.
    """

    run: int
    run_id: str
    began_at: str
    zookeeper: str
    format: str
    partition_by: str
    ends: Mapping[str, Mapping[int, int]]
    births: Mapping[str, int]
    partitions: tuple[LoadedPartition, ...] = ()
    files: tuple[StagedFile, ...] = ()
    text: bool = field(default=False)
    history_id: str = ""

    def to_json(self) -> str:
        """The content of the file; a line for each partition and file, so that it can be read and compared."""
        fields = asdict(self)
        if not self.history_id:
            del fields["history_id"]
        fields["ends"] = {
            topic: {str(partition): end for partition, end in sorted(ends.items())}
            for topic, ends in sorted(self.ends.items())
        }
        rows = {name: [list(row) for row in fields.pop(name)] for name in ("files",)}
        rows["partitions"] = [list(row.values()) for row in fields.pop("partitions")]
        head = json.dumps({"version": VERSION, **fields}, indent=1, ensure_ascii=False)[:-2]
        lists = [
            f' "{name}": [' + ",".join(f"\n  {json.dumps(row, ensure_ascii=False)}" for row in rows[name]) + "]"
            for name in ("partitions", "files")
        ]
        return head + ",\n" + ",\n".join(lists) + "\n}\n"

    @classmethod
    def from_json(cls, path: str, text: str) -> Manifest:
        """The manifest in a file.

        Raises:
            LoadRefused: it is none, or of a version that is not known.
        """
        try:
            fields = json.loads(text)
            version = fields.pop("version")
            if version != VERSION:
                raise LoadRefused(f"{path} is of version {version!r}; this release knows {VERSION}")
            return cls(**{**fields, **_parsed(fields)})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LoadRefused(f"{path} is no manifest of a load ({type(error).__name__}: {error}); put a copy of it "
                              "back in its place, or load into another folder") from error


def _parsed(fields: Mapping[str, Any]) -> dict[str, Any]:
    ends = {
        topic: {int(partition): int(end) for partition, end in ends.items()} for topic, ends in fields["ends"].items()
    }
    return {
        "ends": ends,
        "births": {topic: int(born) for topic, born in fields["births"].items()},
        "partitions": tuple(LoadedPartition(*row) for row in fields["partitions"]),
        "files": tuple(StagedFile(*row) for row in fields["files"]),
    }


def run_name(run: int) -> str:
    """The name of a run in paths.

    >>> run_name(12)
    '000000012'
    """
    return f"{run:0{_DIGITS}}"


def run_number(name: str) -> int | None:
    """The number of a run by the name of its manifest, `None` for other files.

    >>> run_number("000000012.json"), run_number(".000000012.json.tmp")
    (12, None)
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None
