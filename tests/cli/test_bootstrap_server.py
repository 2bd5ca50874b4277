"""`consume`, `produce` and `topics` with some brokers in place of a ZooKeeper."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from simpleconsumer.calls.coordinator_client import GroupsClient
from simpleconsumer.dialect import dialect_of
from simpleconsumer.probe import probed_broker
from simpleconsumer.types import OffsetAndMetadata, TopicPartition
from tests.cli.command_line import run
from zkconsumer.admin import BrokerAdmin
from zkconsumer.cli.program import program
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster

Clusters = Callable[[str, int], KafkaCluster]
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module", params=["0.8", "1.1", "2.8", "4.3"])
def addresses(request: pytest.FixtureRequest) -> Iterator[str]:
    with EmbeddedCluster(2, generation=request.param, zookeeper=False) as cluster:
        cluster.create_topic("clicks", partitions=2)
        cluster.produce("clicks", [b"a", b"b"], partition=0)
        yield f"{NOBODY},{cluster.broker_list}"


def invoke(*arguments: str) -> Result:
    without = dict.fromkeys(("ZKCONSUMER_ZOOKEEPER", "ZKCONSUMER_CONFIG", "ZKCONSUMER_PROFILE"), "")
    return CliRunner().invoke(program, arguments, prog_name="zkconsumer", env=without)


def test_a_topic_is_listed_and_read(addresses: str) -> None:
    shown = run("topics", "--bootstrap-server", addresses, "--json")
    rows = json.loads(shown.stdout)["partitions"]
    assert [(row["topic"], row["partition"], row["earliest"], row["latest"]) for row in rows] == [
        ("clicks", 0, 0, 2), ("clicks", 1, 0, 0),
    ]  # fmt: skip
    read = run("consume", "--bootstrap-server", addresses, "--topic", "clicks", "--until-end", "--print-offset")
    assert (read.stdout, read.returncode) == (b"0\ta\n1\tb\n", 0)


def test_what_is_not_there_is_named(addresses: str) -> None:
    found = run("topics", "list", "click", "--bootstrap-server", addresses)
    assert f"topic 'click' does not exist at the brokers {addresses}; did you mean 'clicks'?".encode() in found.stderr
    silent = run("topics", "--bootstrap-server", NOBODY)
    assert (silent.returncode, f"{NOBODY}: Connection refused".encode() in silent.stderr) == (1, True)


@pytest.mark.real
def test_a_topic_is_created_written_listed_and_read_without_any_zookeeper(kafka_clusters: Clusters) -> None:
    cluster, topic = kafka_clusters("4.3.1", 1), f"cli-{uuid.uuid4().hex[:8]}"
    brokers = f"{NOBODY},127.0.0.1:{cluster.port(0)}"
    sent = run("produce", "--bootstrap-server", brokers, "--topic", topic, "--key-separator", ":", stdin=b"k:1\nk:2\n")
    assert b"did not exist; the brokers created it" in sent.stderr
    assert b"Produced 2 messages" in sent.stderr
    shown = json.loads(run("topics", "list", topic, "--bootstrap-server", brokers, "--json").stdout)
    assert shown["problems"] == []
    assert sum(row["latest"] for row in shown["partitions"]) == 2
    read = run("consume", "--bootstrap-server", brokers, "--topic", topic, "--from-beginning", "--max-messages", "2")
    assert read.stdout == b"1\n2\n"


@pytest.mark.real
def test_a_group_of_real_brokers_is_joined_and_shown(kafka_clusters: Clusters) -> None:
    cluster = kafka_clusters("4.3.1", 1)
    joins_a_group(f"127.0.0.1:{cluster.port(0)}", f"cli-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("generation", ["0.9", "1.1", "4.3"])
def test_a_group_of_embedded_brokers_is_joined_and_shown(generation: str) -> None:
    with EmbeddedCluster(1, generation=generation, zookeeper=False) as cluster:
        joins_a_group(cluster.broker_list, "clicks")


def joins_a_group(brokers: str, topic: str) -> None:
    group = f"{topic}-group"
    consume = ("consume", "--bootstrap-server", brokers, "--topic", topic, "--group", group, "--from-beginning")
    sent = run("produce", "--bootstrap-server", brokers, "--topic", topic, stdin=b"1\n2\n")
    assert sent.returncode == 0, sent.stderr
    assert run(*consume, "--max-messages", "2").stdout == b"1\n2\n"
    again = run(*consume, "--max-messages", "2")
    assert (again.returncode, b"already has offsets for 2 partitions" in again.stderr) == (1, True), again.stderr
    deleted = run(*consume, "--delete-offsets", "--max-messages", "2")
    assert deleted.stdout == b"1\n2\n", deleted.stderr
    shown = json.loads(run("describe", group, "--bootstrap-server", brokers, "--json").stdout)
    assert shown["group"] == group


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--group", "g", "--until-end"), "--until-end reads without a group, and --group is for reading in a"),
        (("--whitelist", ".*"), "Give exactly one of --topic, --whitelist and --blacklist"),
        (("--streams", "2"), "--bootstrap-server without --group reads without a group, and --streams is for"),
        (("--zookeeper", "zk:2181"), "--bootstrap-server and --zookeeper both name a cluster"),
        (("--property", "bootstrap.servers=c:9092"), "give --bootstrap-server LIST instead"),
    ],
)
def test_options_that_contradict_it_are_refused(arguments: tuple[str, ...], words: str) -> None:
    refused = invoke("consume", "--topic", "t", "--bootstrap-server", "b:9092", *arguments)
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr


def test_a_list_that_is_none_is_refused() -> None:
    refused = invoke("topics", "list", "--bootstrap-server", "b")
    assert (refused.exit_code, "'b' is not host:port" in refused.stderr) == (2, True)


def test_nothing_that_names_a_cluster_is_an_error_with_both_ways() -> None:
    for arguments in (("topics",), ("consume", "--topic", "t", "--until-end")):
        refused = invoke(*arguments)
        assert (refused.exit_code, "Or give --bootstrap-server HOST:PORT." in refused.stderr) == (2, True)


def test_a_file_may_name_the_brokers(tmp_path: Path, addresses: str) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(f"bootstrap.servers={addresses}\n")
    shown = run("topics", "--config", str(file), "--json")
    assert len(json.loads(shown.stdout)["partitions"]) == 2


GROUP_COMMANDS = [
    ["describe", ""], ["lag", ""], ["verify", "", "--wait", "0"], ["offsets", "get", ""], ["offsets", "export", ""],
    ["offsets", "set", "", "--topic", "clicks", "--to", "1"], ["offsets", "delete", ""], ["groups", "delete", ""],
    ["offsets", "set", "", "--topic", "clicks", "--shift", "1"],
]  # fmt: skip


@pytest.fixture(scope="module", params=["0.9", "3.9"])
def with_nameless(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A group whose name is empty has read one of two messages."""
    with EmbeddedCluster(1, generation=request.param, zookeeper=False) as cluster:
        cluster.create_topic("clicks", partitions=1)
        cluster.produce("clicks", [b"a", b"b"])
        with BrokerAdmin(cluster.broker_list) as admin:
            admin.set_offsets("named", "clicks", 1)
        yield cluster


@pytest.mark.parametrize("words", GROUP_COMMANDS, ids=" ".join)
def test_a_group_without_a_name_is_no_fault_of_the_program(with_nameless: EmbeddedCluster, words: list[str]) -> None:
    broker = probed_broker("127.0.0.1", with_nameless.port(0))
    with GroupsClient(broker.host, broker.port, 10.0, dialect=dialect_of(broker)) as client:
        client.commit_offsets("", {TopicPartition("clicks", 0): OffsetAndMetadata(1)})
    done = run(*words, "--bootstrap-server", with_nameless.broker_list)
    said = (done.stdout + done.stderr).decode()
    assert "bug in zkconsumer" not in said
    assert done.returncode == (words[0] == "verify" or words[1] == "export"), said
    assert "''" in said or words[:2] == ["offsets", "get"]


@pytest.mark.parametrize(
    "words", [
        *(words for words in GROUP_COMMANDS if "export" not in words), ["release", "", "clicks", "0"],
        ["consume", "--group", "", "--topic", "clicks"],
    ], ids=" ".join,
)  # fmt: skip
def test_zookeeper_has_no_group_without_a_name(words: list[str]) -> None:
    done = run(*words, "--zookeeper", NOBODY)
    assert done.returncode in (1, 2)
    said = done.stderr.decode()
    assert "bug in zkconsumer" not in said
    assert "group ''" in said or "--group" in said, said
