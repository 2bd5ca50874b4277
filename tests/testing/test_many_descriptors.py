"""A program with more than a thousand open files: the kit goes on, whatever number a new descriptor gets."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, tempfile
from pathlib import Path
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (2048 if hard == resource.RLIM_INFINITY else min(hard, 2048), hard))
files = [open("/dev/null") for _ in range(1100)]
from simpleconsumer import SimpleConsumer
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.processes import ChildProcess
with EmbeddedCluster(1, zookeeper=False) as cluster, SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
    cluster.create_topic("t")
    consumer.produce("t", 0, [b"far up"])
    print([message.value for message in consumer.fetch("t", 0, 0)])
with tempfile.TemporaryDirectory() as folder:
    process = ChildProcess("sleeper", ["/bin/sleep", "0.2"], Path(folder, "log"), directory=Path(folder))
    process.wait(20)
    print(process.returncode)
"""


@pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048, reason="fewer than 2,048 files may be opened here"
)
def test_brokers_and_child_processes_do_with_descriptors_above_1023() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.stdout, ran.returncode) == ("[b'far up']\n0\n", 0), ran.stderr
