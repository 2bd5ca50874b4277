"""Groups the small files of a folder that a compaction merges. Pure.

Rules, and what each prevents:
- Only files of one directory are merged: otherwise the layout would change.
- Only files of one incarnation of a topic are merged, and only those from before or after a log was cut: after a topic
  was created anew, and where a log was cut, the same offsets are other messages.
- Files are merged in the order of their names, which start with the number of a run: adjacent offsets stay together.
- A file of three quarters of the wanted size is left alone: rewriting it would cost much and gain little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from zkconsumer.spark.load.compaction import LakeFile

__all__ = ["Group", "plan_groups", "portions_of"]

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
