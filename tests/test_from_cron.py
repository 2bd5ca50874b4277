"""Tests of signals, streams and processes pass also when they are started as from cron or `nohup`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUICK = (
    "tests/cli/test_scratch.py", "tests/testing/test_processes.py", "tests/zkconsumer/test_missed_signals.py",
    "tests/member/test_signal_handlers.py",
)  # fmt: skip
LONGER = (
    "tests/cli/test_cluster_up.py", "tests/cli/test_demo.py", "tests/cli/test_produce_and_consume.py",
    "tests/cli/test_program.py", "tests/cli/test_topics.py", "tests/examples", "tests/interop/test_batches_live.py",
    "tests/interop/test_fork.py", "tests/interop/test_streams_live.py", "tests/streams/test_stream.py",
    "tests/test_readme.py", "tests/testing/test_fixtures.py", "tests/testing/test_java_member.py",
)  # fmt: skip


def check(files: tuple[str, ...], timeout_s: float) -> None:
    command = [sys.executable, "tests/from_cron.py", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]


def test_signals_and_processes_are_tested_alike() -> None:
    check(QUICK, timeout_s=300)


@pytest.mark.slow
@pytest.mark.real
def test_commands_examples_and_members_are_tested_alike() -> None:
    check(LONGER, timeout_s=1500)
