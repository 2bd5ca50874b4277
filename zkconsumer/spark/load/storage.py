"""Accesses the folder of a load on any file system of Hadoop: lists, moves, and creates files that must be new.

It uses Hadoop's `FileSystem` in the JVM of the Spark session, so that `file:`, `hdfs:` and `s3a:` are accessed with the
same settings and credentials as the data.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any, Final

from zkconsumer.spark.load.failures import LoadOvertaken, LoadRefused

_LARGEST_TEXT = 256 * 1024 * 1024
"""Bytes of a manifest; one of a million files has some 200 MB."""
_GLOB: Final = frozenset("*?[]{}\\")
_ONLY_IF_NEW: Final = "fs.option.create.conditional.overwrite"
"""Hadoop's option for a file that the store itself refuses if it exists: S3A from 3.4.2 on."""


class Storage:
    """One folder; every path in its methods is relative to it.

    Args:
        spark: a session with a JVM of its own (not Spark Connect).
        folder: a path or a URL; a plain path is on the default file system, which is the local one unless Hadoop's
            `fs.defaultFS` says otherwise.

    Raises:
        LoadRefused: no file system supports it, or its name has another meaning to a shell or to Spark.
    """

    def __init__(self, spark: Any, folder: str) -> None:
        context = getattr(spark, "_sc", None)
        if context is None:
            raise LoadRefused("a load needs a Spark session with its own driver, not a client of Spark Connect")
        self._jvm = context._jvm
        self._hadoop = self._jvm.org.apache.hadoop.fs
        if folder.startswith("~"):
            raise LoadRefused(f"{folder}: the shell has not expanded ~, and Spark does not expand it",
                              remedy="give the whole path")  # fmt: skip
        try:
            path = self._hadoop.Path(folder)
            self._system = path.getFileSystem(context._jsc.hadoopConfiguration())
            self._root = self._system.makeQualified(path)
        except Exception as error:
            raise LoadRefused(f"{folder}: {reason_of(error)}") from error
        self.folder = str(self._root.toString())
        signs = sorted(_GLOB & set(self.folder))
        if signs:
            raise LoadRefused(f"{self.folder}: Spark treats {' '.join(signs)} as a pattern",
                              remedy="give it another name")  # fmt: skip
        self._local = Path(self._root.toUri().getPath()) if self._root.toUri().getScheme() == "file" else None

    def url(self, path: str) -> str:
        """The URL of a path in the folder, for Spark."""
        return f"{self.folder}/{path}" if path else self.folder

    def names(self, path: str) -> list[str]:
        """The names in a directory of the folder, none when it is not there."""
        place = self._path(path)
        if not self._system.exists(place):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(place))

    def files(self, path: str) -> list[str]:
        """The paths of all files below a directory of the folder."""
        return sorted(self.sizes(path))

    def sizes(self, path: str) -> dict[str, int]:
        """The paths of all files below a directory of the folder, with their sizes in bytes."""
        place = self._path(path)
        if not self._system.exists(place):
            return {}
        found = {}
        each = self._system.listFiles(place, True)
        prefix = len(self._root.toUri().getPath()) + 1
        while each.hasNext():
            status = each.next()
            found[str(status.getPath().toUri().getPath()[prefix:])] = int(status.getLen())
        return found

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._system.exists(self._path(path)))

    def read_text(self, path: str) -> str:
        """The content of a file.

        Raises:
            LoadRefused: it cannot be read, or is larger than a manifest can be.
        """
        place = self._path(path)
        try:
            size = self._system.getFileStatus(place).getLen()
            if size > _LARGEST_TEXT:
                raise LoadRefused(f"{self.url(path)} has {size} bytes; a manifest has at most {_LARGEST_TEXT}")
            return self._content(path).decode("utf-8")
        except LoadRefused:
            raise
        except Exception as error:
            raise LoadRefused(f"{self.url(path)} cannot be read: {reason_of(error)}") from error

    def _content(self, path: str) -> bytes:
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, path: str, text: str) -> None:
        """Create a file with this content atomically: readers see all of it or no file.

        Raises:
            LoadOvertaken: it exists already.
            LoadRefused: it cannot be written.
        """
        try:
            at_once = self._system.hasPathCapability(self._path(path), _ONLY_IF_NEW)
            if not (self._put(path, text) if at_once else self._write_and_name(path, text)):
                raise LoadOvertaken(
                    f"{self.url(path)} exists already: another load has published in {self.folder} in the meantime; "
                    f"nothing of this load was published",
                    remedy="start it again",
                )
        except LoadOvertaken:
            raise
        except Exception as error:
            raise LoadRefused(f"{self.url(path)} cannot be written: {reason_of(error)}") from error

    def _put(self, path: str, text: str) -> bool:
        """Create a file in one request to an object store; False if another one exists."""
        content = text.encode("utf-8")
        try:
            builder = self._system.createFile(self._path(path)).overwrite(False).recursive()
            stream = builder.must(_ONLY_IF_NEW, True).build()
            stream.write(bytearray(content))
            stream.close()  # not after a failure, because closing publishes the file
        except Exception:
            # A request that was repeated, because its answer was lost, is refused because of its own file.
            if not self.exists(path):
                raise
            return self._content(path) == content
        return True

    def _write_and_name(self, path: str, text: str) -> bool:
        """Write a draft, and give it its name; False if another file has that name."""
        # The leading dot keeps readers from taking the draft of a killed run for a manifest.
        folder, _, name = path.rpartition("/")
        draft = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            self._write(draft, text)
            return self._name_it(draft, path)
        finally:
            self.delete(draft)

    def _write(self, path: str, text: str) -> None:
        if self._local is not None:
            place = self._local / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            return
        stream = self._system.create(self._path(path), True)
        stream.write(bytearray(text.encode("utf-8")))
        stream.close()

    def sync(self, paths: Collection[str]) -> None:
        """Sync files that Spark has written to the disk; file systems that are not local do so themselves.

        Raises:
            LoadRefused: one cannot be read, or the disk reports an error.
        """
        if self._local is None:
            return
        parents = {parent for path in paths for parent in PurePosixPath(path).parents}
        for path in [*paths, *map(str, sorted(parents, reverse=True))]:
            try:
                _sync(self._local / path)
            except OSError as error:
                raise LoadRefused(f"{self.url(path)} cannot be written to the disk: {error}") from error

    def overwrite(self, path: str, text: str) -> None:
        """Write a file and replace an existing one; a reader may see a part of it meanwhile."""
        self._write(path, text)

    def _name_it(self, draft: str, path: str) -> bool:
        """Give the draft its name; False if another file has it. On a local disk a rename would replace that file."""
        if self._local is None:
            place = self._path(path)
            return not self._system.exists(place) and bool(self._system.rename(self._path(draft), place))
        try:
            os.link(self._local / draft, self._local / path)
        except FileExistsError:
            return False
        _sync((self._local / path).parent)
        return True

    def move(self, before: str, after: str) -> None:
        """Move a file, and create the directories it needs; nothing is done if it was moved already.

        Raises:
            LoadRefused: it is in neither place, or cannot be moved.
        """
        old, new = self._path(before), self._path(after)
        reason = f"neither it nor {before} exists"
        try:
            self._system.mkdirs(new.getParent())
            if self._system.exists(old) and self._system.rename(old, new):
                return
        except Exception as error:  # noqa: BLE001 - what counts is where the file is now
            reason = reason_of(error)
        # Two loads that start at the same moment both finish the run before them. An object store copies and then
        # deletes: a process that dies in between leaves both files.
        if self._are_equally_long(old, new):
            self._system.delete(old, False)
        elif not self._system.exists(new) or self._system.exists(old):
            raise LoadRefused(f"{self.url(after)} belongs to a published run and cannot be moved there: {reason}")

    def _are_equally_long(self, one: Any, other: Any) -> bool:
        """Whether both files exist and have the same size."""
        if not (self._system.exists(one) and self._system.exists(other)):
            return False
        return bool(self._system.getFileStatus(one).getLen() == self._system.getFileStatus(other).getLen())

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with its content; nothing happens if it does not exist."""
        self._system.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self._root, path) if path else self._root


def _sync(place: Path) -> None:
    """Sync a file, or the names in a directory, to the disk."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason_of(error: Exception) -> str:
    """The message of a Java error, without its stack trace."""
    java = getattr(error, "java_exception", None)
    return str(java.toString()) if java is not None else f"{type(error).__name__}: {error}"
