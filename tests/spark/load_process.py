"""A process that loads, see load_worker.py, and can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START_S, LOAD_S = 240.0, 240.0
_ENDED = ""


class LoadProcess:
    """Is started by the first question, and again by the first one after its end.

    Args:
        settings: of Spark.
        environment: variables beside those of this process.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._lines: Queue[str] = Queue()

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
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def end(self, kill_after_s: float | None = None, may_die: bool = False) -> dict[str, Any] | None:
        """The next answer; `None` if there was none in time, and the process was killed, or if it killed itself."""
        try:
            line = self._lines.get(timeout=kill_after_s or LOAD_S)
        except Empty:
            assert kill_after_s is not None, "a load takes longer than anything explains"
            self.kill()
            return None
        if line == _ENDED:
            self.kill()
            assert may_die, "the process ended in a load"
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **self._environment}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("load_worker.py")), json.dumps(self._settings)],
            env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._lines = Queue()
        Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        assert "ready" in self._lines.get(timeout=START_S)

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                lines.put(line)
        lines.put(_ENDED)

    def kill(self) -> None:
        """Kill it and its JVM, if it runs."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process = None
