"""Reads from a checkpoint folder which batch of a stream was finished last.

A batch is planned in `offsets/N` and finished in `commits/N`. A batch with both files is durable, if its sink is.

Source: Spark 4.3, OffsetSeqLog and CommitLog: a line `v1`, a line of metadata, a line for each source.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from pyarrow import fs

__all__ = ["FinishedBatch", "newest_finished"]

_HEADER = "v1"
_NOTHING = "-"


class FinishedBatch(NamedTuple):
    """A finished batch.

    Attributes:
        ends: the offsets at its end as JSON text, one for each source; `None` for a source that had none yet.
    """

    number: int
    ends: list[str | None]


def newest_finished(checkpoint: str) -> FinishedBatch | None:
    """The newest batch that is finished, `None` before there is one.

    Args:
        checkpoint: a path, or a URI that pyarrow knows (`file:`, `hdfs:`, `s3:`).

    Raises:
        OSError: the folder cannot be read.
        ValueError: there is no such folder, or it does not have the format of Spark 4.
    """
    # Spark writes a local path as `file:/path`.
    system, root = fs.FileSystem.from_uri(re.sub(r"^file:/(?!/)", "file:///", checkpoint))
    if system.get_file_info(root).type != fs.FileType.Directory:
        raise ValueError(f"there is no checkpoint folder {checkpoint}")
    finished = _numbers(system, posixpath.join(root, "offsets")) & _numbers(system, posixpath.join(root, "commits"))
    if not finished:
        return None
    number = max(finished)
    path = posixpath.join(root, "offsets", str(number))
    with system.open_input_stream(path) as stream:
        lines = stream.read().decode("utf-8", "replace").splitlines()
    if len(lines) < 3 or lines[0] != _HEADER:
        raise ValueError(f"{path} is not written as Spark 4 writes it: it starts with {lines[:1]}")
    return FinishedBatch(number, [None if line == _NOTHING else line for line in lines[2:]])


def _numbers(system: fs.FileSystem, folder: str) -> set[int]:
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(file.base_name) for file in files if file.base_name.isascii() and file.base_name.isdigit()}
