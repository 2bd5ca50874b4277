"""An example that runs in the background of a script leaves Ctrl-C to the others."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.examples.example_process import FOLDER, command
from zkconsumer.testing.processes import ChildProcess, free_port
from zkconsumer.testing.waiting import wait_until

NAMES = sorted(path.name for path in FOLDER.glob("*.py") if "signal.signal" in path.read_text(encoding="utf-8"))
STATUS = Path("/proc/self/status")


def signals_of(pid: int, kind: str) -> set[int]:
    """Which signals a process catches (`Cgt`) or ignores (`Ign`)."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^Sig{kind}:\s*(\w+)$", text, re.MULTILINE)
    assert found is not None
    return {number for number in signal.valid_signals() if int(found[1], 16) & 1 << number - 1}


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells what a process ignores")
@pytest.mark.parametrize("name", NAMES)
def test_an_interrupt_that_was_ignored_at_the_start_stays_ignored(name: str, tmp_path: Path) -> None:
    options: dict[str, object] = {"zookeeper": f"127.0.0.1:{free_port()}"}  # nobody is there
    example = [sys.executable, str(FOLDER / name), *command(name, options)]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *example]
    process = ChildProcess(name, ignoring, tmp_path / "log", directory=tmp_path)
    try:
        wait_until(lambda: signal.SIGTERM in signals_of(process.pid, "Cgt"), 30, "a handler", state=process.tail)
        assert signal.SIGINT in signals_of(process.pid, "Ign")
    finally:
        process.kill()
