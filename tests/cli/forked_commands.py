"""Runs commands of `zkconsumer` in processes that are forked from one with everything imported.

A command is a process as a user starts it, with its own standard streams, environment, working directory and signals.
Only the imports, which take longer than most commands, are not done again.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn, Self

from zkconsumer.testing.waiting import wait_until

ROOT = Path(__file__).parents[2]
START_S = 60.0
LARGEST_REQUEST_BYTES = 1024 * 1024


class ForkServer:
    """The process that commands are forked from; it ends with this one.

    Threads: `run` from any thread.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="zkconsumer-commands-")
        self._address = os.path.join(self._folder.name, "socket")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forked_commands", self._address], cwd=ROOT, stdin=subprocess.PIPE
        )
        wait_until(lambda: os.path.exists(self._address) or self._process.poll() is not None, START_S, "the imports")

    def run(
        self, arguments: Sequence[str], *, stdin: bytes, timeout_s: float, until_logged: bool = False,
        environment: Mapping[str, str] | None = None, output: int | None = None,
    ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        """Run a command, and kill it when it does not end in time.

        Args:
            arguments: Those of `zkconsumer`.
            stdin: What it reads.
            timeout_s: How long it may take.
            until_logged: End it by SIGTERM when it has written a line on stderr.
            environment: More variables than those of this process.
            output: A descriptor that becomes its standard output.

        Raises:
            TimeoutError: It did not end in time.
        """
        with (
            tempfile.TemporaryFile() as read, tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as errors,
            socket.socket(socket.AF_UNIX) as link,
        ):  # fmt: skip
            read.write(stdin)
            read.seek(0)
            link.settimeout(timeout_s)
            link.connect(self._address)
            streams = [read.fileno(), written.fileno() if output is None else output, errors.fileno()]
            socket.send_fds(link, [b"\n"], streams)
            request = {
                "arguments": list(arguments), "environment": {**os.environ, **(environment or {})},
                "folder": os.getcwd(),
            }  # fmt: skip
            link.sendall(json.dumps(request).encode() + b"\n")
            answers = link.makefile()
            pid = int(answers.readline())
            try:
                if until_logged:
                    wait_until(lambda: b"\n" in _content(errors), timeout_s, f"a line of {arguments}")
                    os.kill(pid, signal.SIGTERM)
                code = int(answers.readline())
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                raise
            return subprocess.CompletedProcess(list(arguments), code, _content(written), _content(errors))

    def close(self) -> None:
        """End the process; commands that still run are not ended."""
        self._process.communicate(timeout=START_S)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _content(file: IO[bytes]) -> bytes:
    """All that stands in a file, without moving the position that the command shares."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


@functools.cache
def commands() -> ForkServer:
    """The one process of these tests that commands are forked from."""
    server = ForkServer()
    atexit.register(server.close)
    return server


# -- in the process of the server --------------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Fork a process for each connection, until stdin is closed."""
    import zkconsumer.cli.program  # noqa: F401 - what the commands need

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children of it are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen(128)
        os.rename(f"{address}.new", address)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if listener not in ready:
                return
            link, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                supervise(link)
            link.close()


def supervise(link: socket.socket) -> NoReturn:
    """Fork the command, and report its process id and its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(link, 1, 3)
    request = json.loads(link.makefile().readline(LARGEST_REQUEST_BYTES))
    pid = os.fork()
    if pid == 0:
        link.close()
        become(request, streams)
    for stream in streams:
        os.close(stream)
    link.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    link.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become(request: Mapping[str, object], streams: Sequence[int]) -> NoReturn:
    """Be the command."""
    from zkconsumer.cli.program import main

    environment, arguments = request["environment"], request["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.chdir(str(request["folder"]))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["zkconsumer", *arguments]
    code: object = 1
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve(sys.argv[1])
