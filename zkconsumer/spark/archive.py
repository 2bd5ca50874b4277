"""Writes the archive for executors without this package: for Spark's `--py-files`, or `spark.sparkContext.addPyFile`.

It contains this package, with the kernel for this version of Python and this machine, and its pure Python requirements.
Other compiled packages cannot be imported from an archive; they have to be installed on the executors.

Spark puts an archive on the path of the Python processes that it starts, but for that of a stream on the driver: there
it looks for the archive in a folder of the literal name `streaming_job`, which nobody fills. So a source that comes
from an archive is pickled with the place of the archive, which is a file of the same machine.

Source: org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner (4.2 to 4.3).
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final

from zkconsumer.spark.errors import RequirementMissing

COMPILED: Final = ("pyarrow", "numpy", "isal", "lz4", "cramjam", "crc32c")
"""Packages that executors need in addition to the archive."""
_OURS: Final = ("simpleconsumer", "rebalance", "zkconsumer", "zkconsumer_error", "pyspark_zkconsumer")
_PURE: Final = ("kazoo", "snappy", "crcmod")
_LEFT_OUT: Final = ("zkconsumer/testing/", "kazoo/tests/", "kazoo/testing/")
_ANY_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that equal contents make equal archives."""


def write_archive(target: Path) -> int:
    """Write the archive atomically, and return its size in bytes.

    Raises:
        ValueError: The name does not end with `.zip`: Spark would not put it on the path of executors.
        RequirementMissing: A package cannot be found.
        OSError: The file cannot be written.
    """
    if target.suffix.lower() != ".zip":
        raise ValueError(f"{target} does not end with .zip, so Spark would not add it to the path of its executors")
    files = dict(sorted(file for name in (*_OURS, *_PURE) for file in _files(name)))
    handle, unfinished = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in files.items():
                entry = zipfile.ZipInfo(name, _ANY_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())
        Path(unfinished).chmod(0o644)
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    return target.stat().st_size


def reduced(kind: type, state: dict[str, Any]) -> tuple[Any, ...]:
    """Return what `__reduce__` of an object returns, so that it can be unpickled where this package is not on the path.

    Args:
        kind: The class of the object.
        state: Its attributes.
    """
    spec = importlib.util.find_spec("zkconsumer")
    archive = getattr(spec and spec.loader, "archive", None)
    if archive is None:
        return object.__new__, (kind,), state
    from pyspark import cloudpickle

    def restored(archive: str, pickled: bytes) -> Any:
        """A local function is pickled by its code, so it needs no module of this package before it is called."""
        import importlib.util
        import pickle
        import sys

        if importlib.util.find_spec("zkconsumer") is None:
            sys.path.insert(1, archive)
        kind, state = pickle.loads(pickled)
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made

    pickled = cloudpickle.dumps((kind, state))  # type: ignore[no-untyped-call]
    return restored, (archive, pickled)


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the Python files of a top-level package or module, and the kernel, by their names in the archive."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise RequirementMissing(f"{name} cannot be found; pip install 'zkconsumer[spark]' installs it")
    if not found.submodule_search_locations:
        yield f"{name}.py", Path(found.origin)
        return
    folder = Path(found.origin).parent
    for path in folder.rglob("*.py"):
        inside = f"{name}/{path.relative_to(folder).as_posix()}"
        if not inside.startswith(_LEFT_OUT):
            yield inside, path
    for path in folder.glob(f"kernel/_kernel{EXTENSION_SUFFIXES[0]}"):
        yield f"{name}/kernel/{path.name}", path
