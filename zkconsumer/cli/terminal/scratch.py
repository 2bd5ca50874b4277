"""One temporary folder for everything that a command and its servers write; removed however the command ends.

A killed process cannot clean up. So another process does, in a session of its own: neither Ctrl-C nor a closed terminal
reaches it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zkconsumer.cli.failures import CliError

__all__ = ["refuse_if_full", "scratch_folder"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SWEEPING_S = 15.0
_PROBE_BYTES = 1024 * 1024


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder, in which this process makes all its temporary files during the block.

    Raises:
        CliError: It cannot be made.

    Threads: The main thread.
    """
    try:
        folder, sweeper = _make(prefix)
    except OSError as error:
        where = tempfile.tempdir or os.environ.get("TMPDIR") or tempfile.gettempdir()
        raise CliError(f"no temporary folder can be created in {where}: "
                       f"{error.strerror}", "set TMPDIR to another folder") from error
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            sweeper.wait(_SWEEPING_S)


def refuse_if_full(folder: Path) -> None:
    """Raise if a scratch folder has no room; called after a failure, as any other message would mislead then.

    Raises:
        CliError: Less than one MiB can be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(os.urandom(_PROBE_BYTES))  # nothing that a file system could compress
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise CliError(
            f"there is no space for the temporary files of ZooKeeper, brokers and members in {folder.parent} "
            f"({error.strerror or error})", "free space there, or set TMPDIR to another folder"
        ) from error


def _make(prefix: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """Return the folder and the process that removes it; signals are blocked until both exist."""
    from zkconsumer.testing.temporary_folders import SWEEPER  # other commands do without the test kit

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            return folder, subprocess.Popen(
                [sys.executable, "-I", "-S", str(SWEEPER), str(os.getpid()), str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            folder.rmdir()
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
