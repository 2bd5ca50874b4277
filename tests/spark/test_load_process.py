"""Processes that load for the tests, with a stand-in for the program that loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from load_process import ROOT, LoadProcess

from zkconsumer.testing.waiting import wait_until

WORKER = textwrap.dedent(
    """
    import json, os, subprocess, sys, time
    print("chatter")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "sleeps" in asked:  # at work, like a load, and so is what it has started
            below = subprocess.Popen(["sleep", "300"])
            with open(asked["sleeps"], "w") as file:
                file.write(f"{os.getpid()} {below.pid}.")
            time.sleep(300)
        if "dies" in asked:
            os.killpg(0, 9)
        print(json.dumps(asked), flush=True)
    """
)
TESTS = """
import sys
from pathlib import Path
from load_process import LoadProcess
LoadProcess(worker=Path(sys.argv[1])).load({"sleeps": sys.argv[2]})
"""


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return path


def test_it_answers_and_is_started_anew_after_its_end(worker: Path, tmp_path: Path) -> None:
    process = LoadProcess(worker=worker)
    try:
        assert process.ask(rows_of="x") == {"rows_of": "x"}
        process.begin({"dies": 1})
        assert process.end(may_die=True) is None
        assert process.load({"run": 1}) == {"run": 1}
        assert process.load({"sleeps": str(tmp_path / "pids")}, kill_after_s=0.2) is None
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_load_ends_with_the_tests_that_asked_for_it(worker: Path, tmp_path: Path, number: int) -> None:
    file = tmp_path / "pids"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    with subprocess.Popen([sys.executable, "-c", TESTS, str(worker), str(file)], env=environment) as tests:
        wait_until(lambda: file.exists() and file.read_text().endswith("."), 60, "the load to be at work")
        tests.send_signal(number)
    pids = file.read_text().rstrip(".").split()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "the load and its child to be gone")
