"""The pytest plugin, as another project uses it: fixtures, marker, ini options, skips."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.testing.kafka import KafkaCluster

ROOT = Path(__file__).resolve().parents[2]


DOCUMENT = (ROOT / "docs" / "TESTING.md").read_text(encoding="utf-8")
CONFTEST, *PROGRAMS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)


def pytest_run(folder: Path, tests: str, *options: str, ini: str = "", **environment: str) -> str:
    """The output of pytest with the plugin for a file of tests, in a project of its own."""
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\n{ini}")
    (folder / "test_it.py").write_text(tests)
    (folder / "conftest.py").write_text(CONFTEST)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", *options], cwd=folder,
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ZKCONSUMER_REQUIRE_REAL": "", **environment},
    )  # fmt: skip
    return ran.stdout + ran.stderr


SHARED = """
import pytest
seen = []

def test_of_the_options(kafka_cluster):
    assert kafka_cluster.version == "0.8.2.2" and len(kafka_cluster.brokers) == 1
    assert kafka_cluster.create_topic("of-the-options", 2) == {0: 0, 1: 0}
    seen.append(kafka_cluster)

@pytest.mark.kafka_cluster(brokers=1)
def test_alike_is_the_same(kafka_cluster, kafka_clusters):
    assert seen == [kafka_cluster]
    assert kafka_clusters("0.8.2.2", 1) is kafka_cluster

@pytest.mark.kafka_cluster("0.8.1.1", brokers=2)
def test_of_the_marker(kafka_cluster, zookeeper):
    assert kafka_cluster.version == "0.8.1.1" and len(kafka_cluster.brokers) == 2
    assert kafka_cluster not in seen
    assert zookeeper.running and zookeeper.connect != kafka_cluster.zookeeper_connect
"""
"""Asks for the clusters of the document's examples, so that both run with the same servers."""


@pytest.mark.real
def test_the_examples_of_the_document_pass_and_clusters_come_by_marker_and_option_and_are_shared(
    tmp_path: Path,
) -> None:
    [options] = re.findall(r"```ini\n\[pytest\]\n(.*?)```", DOCUMENT, re.DOTALL)
    for number, program in enumerate(PROGRAMS):
        (tmp_path / f"test_program{number}.py").write_text(program)
    said = pytest_run(tmp_path, SHARED, ini=options)
    [collected] = re.findall(r"collected (\d+) items", said)
    tests = sum(program.count("def test_") for program in [SHARED, *PROGRAMS])
    assert int(collected) >= tests  # some are parametrised
    assert f"= {collected} passed in" in said, said
    assert len(PROGRAMS) >= 3


def test_the_tests_of_a_project_that_does_not_name_the_plugin_load_nothing_of_it(tmp_path: Path) -> None:
    text = """
import sys

def test_it(pytestconfig):
    assert not [name for name in sys.modules if name.startswith(("zkconsumer", "simpleconsumer", "rebalance"))]
"""
    (tmp_path / "test_it.py").write_text(text)
    ran = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True,
                         text=True, timeout=300, check=False)  # fmt: skip
    assert "1 passed" in ran.stdout, ran.stdout


EMBEDDED = """
import pytest
from zkconsumer import ConsumerConfig, ConsumerConnector
from simpleconsumer import SimpleConsumerError
from zkconsumer.testing import EmbeddedCluster, Fault, load
seen = []

@pytest.fixture(scope="module")
def filled(embedded_clusters):
    cluster = embedded_clusters(2)
    cluster.create_topic("filled", assignment={0: [0], 1: [1]})
    load(cluster, "filled", 5)
    return cluster

def test_of_the_options(embedded_cluster):
    assert isinstance(embedded_cluster, EmbeddedCluster) and len(embedded_cluster.brokers) == 1
    assert embedded_cluster.create_topic("clicks", 2) == {0: 0, 1: 0}
    seen.append(embedded_cluster)

@pytest.mark.embedded_cluster(brokers=1)
def test_alike_is_the_same(embedded_cluster, embedded_clusters, filled):
    assert seen == [embedded_cluster] == [embedded_clusters(1)]
    assert filled is not embedded_cluster

@pytest.mark.embedded_cluster(2)
def test_that_breaks_everything_it_finds(embedded_cluster, filled):
    assert embedded_cluster is filled
    for fault in FAULTS:
        embedded_cluster.faults.add(fault, times=None)
    with pytest.raises(SimpleConsumerError):
        load(embedded_cluster, "filled", 1)
    assert embedded_cluster.faults.used(FAULTS[0])
    embedded_cluster.pause(0)
    embedded_cluster.kill(1)

def test_that_finds_everything_whole(filled):
    assert not any(filled.faults.used(fault) for fault in FAULTS)
    load(filled, "filled", 5, first=5)
    config = ConsumerConfig(filled.zookeeper_connect, "group", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({"filled": 1})["filled"]
        values = {next(stream).value for _ in range(20)}
    assert values == {b"%d:%d" % (partition, n) for partition in (0, 1) for n in range(10)}
    filled.faults.add(FAULTS[0], times=None)

@pytest.mark.embedded_cluster(brokers=2)
def test_that_sees_no_fault_of_one_that_used_the_wider_fixture(embedded_cluster):
    embedded_cluster.create_topic("last")
    assert len(load(embedded_cluster, "last", 5)) == 5

@pytest.mark.embedded_cluster(brokers=2, generation="0.7")
def test_of_kafka_0_7(embedded_cluster, embedded_clusters):
    assert embedded_cluster is embedded_clusters(2, "0.7") is not embedded_clusters(2)
    embedded_cluster.create_topic("old")
    assert {event.partition for event in load(embedded_cluster, "old", 1)} == {"0-0", "0-1", "1-0", "1-1"}
    embedded_cluster.faults.add(Fault.error(1), times=None)
    embedded_cluster.kill(1)

@pytest.mark.embedded_cluster(2, "0.7")
def test_of_kafka_0_7_after_one_that_broke_it(embedded_cluster):
    assert all(broker.running for broker in embedded_cluster.brokers.values())
    assert len(load(embedded_cluster, "old", 1, first=1)) == 4

FAULTS = [Fault.error(6), Fault.close(), Fault.delay(0.1), Fault.corrupt("filled", 0, offset=0)]
"""


@pytest.mark.real
def test_embedded_clusters_are_shared_and_hand_no_fault_on(tmp_path: Path) -> None:
    said = pytest_run(tmp_path, EMBEDDED)
    assert "7 passed" in said, said


FAILING = """
import pytest
from zkconsumer.testing import Fault, load

@pytest.fixture
def breaking_down(embedded_cluster):
    yield embedded_cluster.faults.add(Fault.error(6), times=None)
    raise RuntimeError("in the fixture's end")

def test_that_ends_badly(breaking_down):
    raise RuntimeError("in the test")

def test_of_another(embedded_cluster):
    embedded_cluster.create_topic("t")
    load(embedded_cluster, "t", 1)
"""


@pytest.mark.real
def test_a_test_that_fails_hands_no_fault_on_either(tmp_path: Path) -> None:
    assert "1 failed, 1 passed, 1 error" in pytest_run(tmp_path, FAILING)


BROKERS_INI, VERSION_INI = "zkconsumer_kafka_brokers = none", "zkconsumer_kafka_version = 0.8.9"
REFUSED = {
    "": [
        ("embedded_cluster", "(size=2)", "the marker embedded_cluster takes brokers and generation"),
        ("embedded_cluster", "(2, '0.7', 3)", "the marker embedded_cluster takes brokers and generation"),
        ("embedded_cluster", "(2, 3)", "generation '3': embedded brokers are of 0.8 and 0.7"),
        ("embedded_cluster", "(brokers=-1)", "-1 brokers: a number from 1 is needed"),
        ("embedded_cluster", "(brokers=0)", "0 brokers: a number from 1 is needed"),
        ("kafka_cluster", "(size=2)", "the marker kafka_cluster takes version and brokers"),
        ("kafka_cluster", "('0.8.2.2', 1, 2)", "the marker kafka_cluster takes version and brokers"),
        ("kafka_cluster", "(brokers='two')", "'two' brokers: a number from 1 is needed"),
    ],
    BROKERS_INI: [
        ("embedded_cluster", None, "'none' brokers: a number from 1 is needed"),
        ("kafka_cluster", None, "'none' brokers: a number from 1 is needed"),
    ],
    VERSION_INI: [("kafka_cluster", None, "Kafka 0.8.9: known versions are 0.7.2, ")],
}
"""By the ini options: fixtures, arguments of the marker of the same name, and what is said."""


@pytest.mark.parametrize("ini", REFUSED)
def test_a_cluster_that_cannot_be_is_refused(tmp_path: Path, ini: str) -> None:
    text = "import pytest\n"
    for number, (fixture, arguments, _) in enumerate(REFUSED[ini]):
        marker = "" if arguments is None else f"@pytest.mark.{fixture}{arguments}\n"
        text += f"{marker}def test_{number}({fixture}):\n    pass\n"
    shown = pytest_run(tmp_path, text, "-rN", ini=ini)  # without a summary, each error is shown once
    _, *errors = re.split(r"ERROR at setup of test_\d+", shown)
    assert len(errors) == len(REFUSED[ini]), shown
    for error, (_, _, said) in zip(errors, REFUSED[ini], strict=True):
        assert said in error


def test_options_and_marker_are_documented_to_pytest(tmp_path: Path) -> None:
    markers = pytest_run(tmp_path, "", "--markers")
    assert "@pytest.mark.kafka_cluster(version=None, brokers=None)" in markers
    assert "@pytest.mark.embedded_cluster(brokers=None, generation='0.8')" in markers
    assert "zkconsumer_kafka_version" in pytest_run(tmp_path, "", "--help")


def test_without_a_docker_engine_the_containers_are_skipped_with_a_sentence(tmp_path: Path) -> None:
    text = "def test_it(kafka_containers):\n    pass\n"
    said = pytest_run(tmp_path, text, "-rs", DOCKER_HOST=f"unix://{tmp_path}/no.sock", ZKCONSUMER_REQUIRE_REAL="1")
    assert "1 skipped" in said, said
    assert re.search(r"no Docker engine answers \(.*\); start one, or use the fixture kafka_cluster", said)


def test_a_test_may_mix_both_ways(kafka_cluster: KafkaCluster, kafka_0822: KafkaCluster) -> None:
    assert len(kafka_cluster.brokers) == 1
    assert len(kafka_0822.brokers) == 2
    assert kafka_cluster.version == kafka_0822.version == "0.8.2.2"
