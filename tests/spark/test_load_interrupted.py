"""Ctrl-C while Spark is still on its way up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from killing import descendants, wait_gone

from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

START_S = END_S = 120


def test_a_load_that_is_interrupted_while_java_starts_leaves_no_java_behind(
    tmp_path: Path, embedded_cluster: EmbeddedCluster
) -> None:
    program, zookeeper = Path(sys.executable).with_name("zkconsumer"), embedded_cluster.zookeeper_connect
    command = [str(program), "load", "--zookeeper", zookeeper,
               "--topic", "clicks", "--to", str(tmp_path / "lake")]  # fmt: skip
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_until(lambda: any("SparkSubmit" in each for each in descendants(process.pid).values()), START_S, "Java",
                   interval_s=0.01)  # fmt: skip
        started = list(descendants(process.pid))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(END_S) == 130
        wait_gone(started)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(END_S)
    said = (tmp_path / "said").read_text().splitlines()
    # Java may name its options after the command has ended.
    assert [line for line in said if not line.startswith("NOTE: Picked up ")][-1].startswith("zkconsumer: interrupted")
