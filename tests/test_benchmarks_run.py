"""Every benchmark of the documents runs, with little data; what it measures is not looked at.

`pytest -m slow tests/test_benchmarks_run.py`
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

BENCHMARKS: Final = Path(__file__).parent / "benchmarks"
NOT_COMMANDS: Final = {
    "one_broker", "process_times", "rebalance_phases", "rebalance_real", "rebalance_simulated", "requests_sent",
}  # fmt: skip
"""Modules that others import."""
SMALL: Final = {
    "async_next": ["--rounds", "1"],
    "blocked_stream": ["--embedded", "--kinds", "small", "--rounds", "1", "--large", "20", "--small", "2000"],
    "columns": ["1"],
    "consume": ["--sizes", "100", "--codecs", "none", "--clients", "ours", "--rounds", "1", "--megabytes", "1",
                "--kafka", "0.8.2.2", "embedded-0.8", "embedded-0.7"],
    "embedded_broker": ["8"],
    "first_start": ["--topics", "1", "--partitions", "20"],
    "flat_memory": ["--kept", "10000", "--millions", "0.02"],
    "idle_member": ["--partitions", "3", "--seconds", "1", "--messages", "1"],
    "lag_round": ["--groups", "3", "--partitions", "4", "--rounds", "1", "--runs", "1", "--offsets", "kafka"],
    "log_check": ["--megabytes", "2", "--rounds", "1"],
    "mirror": ["--sizes", "100", "--codecs", "none", "--megabytes", "1", "--clients", "mirror", "decoded"],
    "mirror_audit": ["--records", "5000", "--sizes", "100", "--codecs", "none"],
    "peers": ["--kafka", "0.8.2.2", "--codecs", "none", "--sizes", "100", "--rounds", "1", "--megabytes", "1",
              "--clients", "ours"],
    "produce": ["--sizes", "100", "--codecs", "none", "--clients", "ours-send-all", "ours-send", "--rounds", "1",
                "--megabytes", "1", "--kafka", "0.8.2.2", "embedded-0.8", "embedded-0.7"],
    "record_batches": ["1"],
    "read_topic": ["--sizes", "100", "--rounds", "1", "--megabytes", "1"],
    "rebalance": ["--members", "3", "--partitions", "6", "--phases", "cold,leave"],
    "session_end": ["--members", "1", "--rounds", "1"],
    "spark": ["--rows", "20000", "--rounds", "1"],
    "spark_load": ["--rows", "20000", "--rounds", "1"],
    "spark_sink": ["--rows", "5000", "--rounds", "1"],
}  # fmt: skip


def test_each_benchmark_is_run_below() -> None:
    assert {path.stem for path in BENCHMARKS.glob("*.py")} - NOT_COMMANDS == set(SMALL)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_benchmark_runs(name: str) -> None:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *SMALL[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout.strip()
