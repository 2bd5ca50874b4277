"""The manifest of a compaction: which files replace which others. Pure.

A compaction is published atomically, by the creation of `_zkconsumer/compactions/<number>.json`. It changes no message
and no offset, so loads and compactions need not wait for each other.

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from zkconsumer.spark.load.manifest import Manifest, run_name
from zkconsumer.spark.load.manifest_json import manifest_text, parse_manifest

__all__ = ["Compaction", "LakeFile", "Replacement", "live_files"]

VERSION: Final = 1


class Replacement(NamedTuple):
    """One file that replaces others, by paths within the folder of the load.

    Attributes:
        staged: where it was written.
        final: the place to which it is moved, in the directory of those it replaces.
        replaced: the files whose messages it holds.
    """

    staged: str
    final: str
    replaced: tuple[str, ...]


@dataclass(frozen=True)
class Compaction:
    """What one compaction has done.

    Attributes:
        number: from 1; runs have numbers of their own.
        compaction_id: distinguishes it from another one that tried to publish the same number.
        began_at: when it started; UTC, ISO 8601.
    """

    number: int
    compaction_id: str
    began_at: str
    replacements: tuple[Replacement, ...] = ()

    @property
    def name(self) -> str:
        """Its name in paths."""
        return f"{run_name(self.number)}-{self.compaction_id}"

    def to_json(self) -> str:
        """The content of the file, with a line for each new file."""
        head = {"version": VERSION, "number": self.number, "compaction_id": self.compaction_id,
                "began_at": self.began_at}  # fmt: skip
        return manifest_text(head, {"replacements": self.replacements})

    @classmethod
    def from_json(cls, path: str, text: str) -> Compaction:
        """The compaction in a file.

        Raises:
            LoadRefused: It is none, or of a version that is not known.
        """
        return parse_manifest(
            path, text, "a compaction", (VERSION,), cls._of_fields, "put a copy of it back in its place"
        )

    @classmethod
    def _of_fields(cls, found: dict[str, Any]) -> Compaction:
        rows = found.pop("replacements")
        return cls(**found, replacements=tuple(Replacement(new, final, tuple(old)) for new, final, old in rows))


class LakeFile(NamedTuple):
    """A file of messages that readers should read.

    Attributes:
        path: within the folder of the load.
        size_bytes: of it.
        created_zxid: the incarnation of its topic: the transaction of ZooKeeper that created it.
        cuts: how many runs up to its own went on below the end of the run before, because a log was cut there.
    """

    path: str
    size_bytes: int
    created_zxid: int | None
    cuts: int = 0

    @property
    def directory(self) -> str:
        """Its directory within the folder of the load."""
        return self.path.rpartition("/")[0]


def live_files(
    runs: Iterable[Manifest], compactions: Iterable[Compaction], sizes: dict[str, int]
) -> tuple[LakeFile, ...]:
    """The files that hold every published message once, of those that are in their places.

    Args:
        runs, compactions: in their order.
        sizes: of the files that are in their places, without those that an operator has removed, and those that the
            last run or the last compaction has not moved yet.
    """
    incarnations: dict[str, tuple[int | None, int]] = {}
    cuts: Counter[str] = Counter()
    ends: dict[tuple[str, int | str], int] = {}
    for run in runs:
        cuts.update({each.topic for each in run.partitions if each.start < ends.get((each.topic, each.partition), 0)})
        ends |= {(each.topic, each.partition): each.end for each in run.partitions}
        for path in data_files(run):
            topic = _topic(path)
            incarnations[path] = run.state.offsets.created_zxids.get(topic), cuts[topic]
    replaced: set[str] = set()
    for compaction in compactions:
        for new in compaction.replacements:
            incarnations[new.final] = incarnations.get(new.replaced[0], (None, 0))
            # The old files count until the new one is in its place.
            if new.final in sizes:
                replaced.update(new.replaced)
    return tuple(LakeFile(path, sizes[path], *incarnations[path])
                 for path in sorted(incarnations.keys() & sizes.keys() - replaced))  # fmt: skip


def data_files(run: Manifest) -> Collection[str]:
    """The places of the files of messages of a run, without those of the side output."""
    return [file.final for file in run.files if file.final.startswith("topic=")]


def _topic(path: str) -> str:
    return path.partition("/")[0].removeprefix("topic=")
