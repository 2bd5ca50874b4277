"""Runs an example as a process, by the command that stands in its docstring."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

FOLDER = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 60.0
_numbers = itertools.count()


def shown_command(name: str) -> str:
    """The command that an example's docstring shows for it."""
    docstring = ast.get_docstring(ast.parse((FOLDER / name).read_text(encoding="utf-8"))) or ""
    found = re.findall(rf"^    (python examples/{re.escape(name)} .*)$", docstring, re.MULTILINE)
    assert len(found) == 1, f"{name} shows {len(found)} commands for itself"
    return str(found[0])


def command(name: str, options: dict[str, object]) -> list[str]:
    """The shown command with the values of some options replaced, and with further options behind it."""
    words = shlex.split(shown_command(name))[2:]
    for option, value in options.items():
        word = f"--{option.replace('_', '-')}"
        if word in words:
            words[words.index(word) + 1] = str(value)
        else:
            words += [word, str(value)]
    return words


class Example:
    """A running example; it is killed with the end of the block at the latest."""

    def __init__(
        self, name: str, folder: Path, *, program: Path | None = None, output: Path | None = None, **options: object
    ) -> None:
        """Start an example with options (`_` for `-`).

        Args:
            folder: holds what it writes.
            program: runs it; gets its path and its options.
            output: takes its stdout, instead of a file in the folder.
        """
        stem = f"{name}-{next(_numbers)}"
        self._output = output or folder / f"{stem}.out"
        self._errors = folder / f"{stem}.err"
        arguments = [str(program)] * (program is not None) + [str(FOLDER / name), *command(name, options)]
        self.process = ChildProcess(name, [sys.executable, *arguments], self._errors, output_path=self._output)

    def lines(self) -> list[str]:
        """The complete lines on stdout so far."""
        return self._output.read_text().split("\n")[:-1]

    def errors(self) -> str:
        """What stands on stderr so far."""
        return self._errors.read_text()

    def wait_lines(self, count: int) -> list[str]:
        """The lines on stdout, once there are so many."""
        self.wait_for(lambda: len(self.lines()) >= count, f"{count} lines")
        return self.lines()

    def wait_for(self, condition: Any, what: str) -> None:
        """Return when `condition()` is true; fails with stderr at hand, and at once when the process ends before."""
        wait_until(
            lambda: condition() or not self.process.running, PATIENCE_S, what,
            state=lambda: (self.lines()[-3:], self.errors()),
        )  # fmt: skip
        assert condition(), f"{what}: ended with {self.process.returncode}\n{self.errors()}"

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit status after a signal."""
        self.process.signal(number)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()


def stored(cluster: Any, group: str, topic: str) -> dict[int, int]:
    """Partition -> offset in ZooKeeper."""
    path = f"/consumers/{group}/offsets/{topic}"
    if cluster.client.exists(path) is None:
        return {}
    return {int(name): int(cluster.client.get(f"{path}/{name}")[0]) for name in cluster.client.get_children(path)}


def members(cluster: Any, group: str) -> list[str]:
    """The registered members of a group."""
    path = f"/consumers/{group}/ids"
    return list(cluster.client.get_children(path)) if cluster.client.exists(path) else []
