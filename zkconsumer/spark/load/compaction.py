"""The manifest of a compaction: which files stand in place of which. Pure.

A compaction is published by the one act of creating `_zkconsumer/compactions/<number>.json`. It changes no message and
no offset: loads need not know of it, and it need not wait for them.

Source: docs/SPARK_LOADING.md, "Compaction".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from zkconsumer.spark.load.errors import LoadRefused
from zkconsumer.spark.load.manifest import Manifest, run_name

__all__ = ["Compaction", "LakeFile", "Replacement", "live_files"]

VERSION: Final = 1


class Replacement(NamedTuple):
    """One file in place of others, by paths within the folder of the load.

    Attributes:
        staged: where it was written.
        final: where it belongs, in the directory of those it replaces.
        replaced: the files whose messages it holds.
    """

    staged: str
    final: str
    replaced: tuple[str, ...]


@dataclass(frozen=True)
class Compaction:
    """What one compaction has done.

    Attributes:
        number: from 1; those of runs are others.
        compaction_id: tells it from another that tried for the same number.
        began_at: UTC, ISO 8601.
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
        rows = ",".join(f"\n  {json.dumps(row, ensure_ascii=False)}" for row in self.replacements)
        return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "replacements": [{rows}]\n}}\n'

    @classmethod
    def from_json(cls, path: str, text: str) -> Compaction:
        """The compaction in a file.

        Raises:
            LoadRefused: It is none, or of a version that is not known.
        """
        try:
            found = json.loads(text)
            version = found.pop("version")
            if version != VERSION:
                raise LoadRefused(f"{path} is of version {version!r}; this release knows {VERSION}")
            rows = found.pop("replacements")
            return cls(**found, replacements=tuple(Replacement(new, final, tuple(old)) for new, final, old in rows))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LoadRefused(f"{path} is no manifest of a compaction ({type(error).__name__}: {error}); put a copy of "
                              "it back in its place") from error


class LakeFile(NamedTuple):
    """A file of messages that counts.

    Attributes:
        path: within the folder of the load.
        size_bytes: of it.
        created_zxid: the incarnation of its topic: the transaction in which ZooKeeper saw that created.
    """

    path: str
    size_bytes: int
    created_zxid: int | None

    @property
    def directory(self) -> str:
        """Where it lies."""
        return self.path.rpartition("/")[0]


def live_files(
    runs: Iterable[Manifest], compactions: Iterable[Compaction], sizes: dict[str, int]
) -> tuple[LakeFile, ...]:
    """The files that hold every published message once, of those that are in their places.

    Args:
        compactions: in their order.
        sizes: of the files that are in their places. What an operator has removed is not among them, nor is what the
            last run, or the last compaction, has not moved yet.
    """
    incarnations: dict[str, int | None] = {}
    for run in runs:
        incarnations |= {path: run.state.offsets.created_zxids.get(_topic(path)) for path in data_files(run)}
    replaced: set[str] = set()
    for compaction in compactions:
        for new in compaction.replacements:
            incarnations[new.final] = incarnations.get(new.replaced[0])
            # The old files go when the new one is in its place, and not before.
            if new.final in sizes:
                replaced.update(new.replaced)
    return tuple(LakeFile(path, sizes[path], incarnations[path])
                 for path in sorted(incarnations.keys() & sizes.keys() - replaced))  # fmt: skip


def data_files(run: Manifest) -> Collection[str]:
    """Where the files of messages of a run belong; those of the side output are left out."""
    return [file.final for file in run.files if file.final.startswith("topic=")]


def _topic(path: str) -> str:
    return path.partition("/")[0].removeprefix("topic=")
