"""The manifest of a compaction: which files replace which others. Pure.

A compaction is published atomically, by the creation of `_zkconsumer/compactions/<number>.json`. It changes no message
and no offset, so loads and compactions need not wait for each other.

Source: docs/SPARK_LOADING.md, "Compaction".

Groups the small files of a folder that a compaction merges.

Rules, and what each prevents:
- Only files of one directory are merged: otherwise the layout would change.
- Only files of one incarnation of a topic are merged, and only those from before or after a log was cut: after a topic
  was created anew, and where a log was cut, the same offsets are other messages.
- Files are merged in the order of their names, which start with the number of a run: adjacent offsets stay together.
- A file of three quarters of the wanted size is left alone: rewriting it would cost much and gain little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

from zkconsumer.spark.load.manifest import Manifest, manifest_text, parse_manifest, run_name

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
    """The result of one compaction.

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
        return parse_manifest(path, text, "a compaction", (VERSION,), cls._of_fields, "restore the file from a copy")

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
    """The files that hold every published message once, among the files that are in their places.

    Args:
        runs, compactions: in their order.
        sizes: of the files that are in their places, without files that an operator has removed, and files that the
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


Group: TypeAlias = tuple[LakeFile, ...]
"""Files that become one."""


def plan_groups(files: Iterable[LakeFile], file_bytes: int) -> list[Group]:
    """The groups of files to merge, each of at least two files with a total of `file_bytes` at most."""
    small = sorted((file for file in files if file.size_bytes * 4 < file_bytes * 3),
                   key=lambda file: (file.directory, file.created_zxid or 0, file.cuts, file.path))  # fmt: skip
    groups: list[Group] = []
    for _, alike in groupby(small, key=lambda file: (file.directory, file.created_zxid, file.cuts)):
        groups += [group for group in _filled(alike, file_bytes) if len(group) > 1]
    return groups


def _filled(files: Iterable[LakeFile], file_bytes: int) -> Iterator[Group]:
    group: list[LakeFile] = []
    for file in files:
        if group and sum(each.size_bytes for each in group) + file.size_bytes > file_bytes:
            yield tuple(group)
            group = []
        group.append(file)
    yield tuple(group)


def portions_of(groups: Iterable[Group], most_bytes: int, most_files: int) -> Iterator[list[Group]]:
    """The groups in portions of at most so many bytes and files, but at least one group each."""
    portion: list[Group] = []
    size_bytes = count = 0
    for group in groups:
        group_bytes = sum(file.size_bytes for file in group)
        if portion and (size_bytes + group_bytes > most_bytes or count + len(group) > most_files):
            yield portion
            portion, size_bytes, count = [], 0, 0
        portion.append(group)
        size_bytes, count = size_bytes + group_bytes, count + len(group)
    if portion:
        yield portion
