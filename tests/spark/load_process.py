"""A process that loads (load_worker.py) and can be killed; it never outlives the tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zkconsumer.testing.errors import WaitTimeout
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("load_worker.py")
START_S, LOAD_S = 240.0, 240.0


class LoadProcess:
    """Is started by the first question, and again by the first one after its end.

    Args:
        settings: of Spark.
        environment: variables beside those of this process.
        worker: the program that answers.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        worker: Path = WORKER,
    ) -> None:
        self._settings = dict(settings or {})
        self._environment = dict(environment or {})
        self._worker = worker
        self._process: ChildProcess | None = None
        self._folder = Path()
        self._read_bytes = 0
        self._answers: deque[dict[str, Any]] = deque()

    def load(self, asked: Mapping[str, object], kill_after_s: float | None = None) -> dict[str, Any] | None:
        """What came of a load; `None` if it was killed."""
        self.begin(asked)
        return self.end(kill_after_s)

    def ask(self, **asked: object) -> dict[str, Any]:
        """The answer to anything else than a load."""
        self.begin(asked)
        found = self.end()
        assert found is not None
        return found

    def begin(self, asked: Mapping[str, object]) -> None:
        """Send a question, or what a load waits for."""
        process = self._process or self._start()
        process.write_stdin(json.dumps(asked).encode() + b"\n")

    def end(self, kill_after_s: float | None = None, may_die: bool = False) -> dict[str, Any] | None:
        """The next answer; `None` if there was none in time, and the process was killed, or if it killed itself."""
        assert self._process is not None
        try:
            self._wait(self._process, kill_after_s or LOAD_S)
        except WaitTimeout:
            assert kill_after_s is not None, "a load takes longer than anything explains"
            self.kill()
            return None
        if self._answers:
            return self._answers.popleft()
        self.kill()
        assert may_die, "the process ended in a load"
        return None

    def _start(self) -> ChildProcess:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **self._environment}
        self._folder = Path(tempfile.mkdtemp(prefix="zkconsumer-load-"))
        self._read_bytes = 0
        self._answers.clear()
        self._process = process = ChildProcess(
            "load worker", [sys.executable, str(self._worker), json.dumps(self._settings)], self._folder / "log",
            output_path=self._folder / "answers", environment=environment, stdin=True,
        )  # fmt: skip
        self._wait(process, START_S)
        assert self._answers, process.tail()
        assert "ready" in self._answers.popleft()
        return process

    def _wait(self, process: ChildProcess, timeout_s: float) -> None:
        """Return when there is an answer, or when the process has ended without one."""

        def has_come() -> bool:
            ended = not process.running
            self._read()
            return ended or bool(self._answers)

        wait_until(has_come, timeout_s, "an answer of the load worker", state=process.tail)

    def _read(self) -> None:
        with (self._folder / "answers").open("rb") as answers:
            answers.seek(self._read_bytes)
            data = answers.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        self._answers += [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]

    def kill(self) -> None:
        """Kill it and its JVM, if it runs."""
        if self._process is None:
            return
        self._process.kill_group()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)
