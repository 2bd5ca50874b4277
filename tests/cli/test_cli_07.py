"""The commands on Kafka 0.7: embedded brokers, and real ones where their jar is given."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_07 import BOTH_07, Both, cluster_07, produce_07, send_set

from simpleconsumer.dialect import KAFKA07
from tests.cli.command_line import TIMEOUT_S, Running, run
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer) -> Iterator[Both]:
    with cluster_07(request.param, zookeeper=zookeeper, chroot=f"/{uuid.uuid4().hex}") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def command(cluster: Both) -> Run:
    """Runs a command on the cluster: status, stdout, stderr."""

    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        done = run(*arguments, "--zookeeper", cluster.zookeeper_connect, stdin=stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return call


@pytest.fixture
def topic(cluster: Both, fresh_topic: Callable[[], str]) -> str:
    """A topic with three messages in 0-1 and one in 1-0."""
    name = fresh_topic()
    cluster.create_topic(name)
    produce_07(cluster.port(0), name, 1, [b"first", b"second", b"third"])
    produce_07(cluster.port(1), name, 0, [b"elsewhere"])
    return name


def table(text: str) -> list[list[str]]:
    """The rows of the first table, without its headers."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if "PARTITION" in line)
    return [line.split() for line in lines[first + 1 :] if line.strip() and not line.startswith(("Total", "!"))]


# -- what is shown ---------------------------------------------------------------------------------------------------


def test_topics(command: Run, topic: str) -> None:
    status, out, _ = command("topics", topic, "--check")
    assert status == 0
    assert out.startswith("1 topic, 4 partitions\n")
    assert table(out) == [
        [topic, "0-0", "0", "-", "-", "0", "0"], [topic, "0-1", "0", "-", "-", "0", "46"],
        [topic, "1-0", "1", "-", "-", "0", "19"], [topic, "1-1", "1", "-", "-", "0", "0"],
    ]  # fmt: skip
    assert topic in command("topics", "list")[1]


def test_lag_is_in_bytes_and_labelled_so(command: Run, topic: str, fresh_group: str) -> None:
    assert command("offsets", "set", fresh_group, "--topic", topic, "--to", "earliest")[0] == 0
    for arguments in (["describe", fresh_group], ["lag", fresh_group, "--by", "partition"],
                      ["offsets", "get", fresh_group]):  # fmt: skip
        status, out, _ = command(*arguments)
        assert status == 0
        assert "LAG (BYTES)" in out
    assert "Total lag: 65 bytes" in command("describe", fresh_group)[1]
    assert ", total lag 65 bytes\n" in command("lag", fresh_group)[1]
    for arguments in (["describe", fresh_group], ["lag", fresh_group], ["offsets", "get", fresh_group]):
        found = json.loads(command(*arguments, "--json")[1])
        assert found["lag_unit"] == "bytes"
        rows = (found["groups"][0] if "groups" in found else found)["partitions"]
        assert [(row["partition"], row["partition_node"], row["lag"]) for row in rows] == [
            (None, "0-0", 0), (None, "0-1", 46), (None, "1-0", 19), (None, "1-1", 0),
        ]  # fmt: skip
    assert fresh_group in command("groups")[1]
    status, _, err = command("groups", "delete", fresh_group)
    assert status == 0, err


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_set_to_the_starts_of_entries(command: Run, topic: str, fresh_group: str) -> None:
    place = ["offsets", "set", fresh_group, "--topic", topic, "--partition", "0-1"]
    status, out, err = command(*place, "--to", "20")
    assert (status, out) == (0, f"{fresh_group} {topic}-0-1: none -> 15\n")
    assert f"note: {topic}-0-1: position 20 is inside an entry; set to the entry's start, 15" in err
    assert command(*place, "--shift", "5")[1] == f"{fresh_group} {topic}-0-1: 15 -> 15\n"
    assert command(*place, "--shift", "16")[1] == f"{fresh_group} {topic}-0-1: 15 -> 31\n"
    status, _, err = command(*place, "--to", "99")
    assert (status, "its log has 0 to 46" in err) == (1, True)
    status, _, err = command("offsets", "set", fresh_group, "--topic", topic, "--partition", "x", "--to", "0")
    assert (status, "in Kafka 0.7 a name such as 0-3" in err) == (2, True)


def test_offsets_are_exported_imported_and_deleted(command: Run, topic: str, fresh_group: str) -> None:
    command("offsets", "set", fresh_group, "--topic", topic, "--to", "latest")
    exported = command("offsets", "export", fresh_group)[1]
    assert f"/consumers/{fresh_group}/offsets/{topic}/0-1:46\n" in exported
    assert command("offsets", "delete", fresh_group, "--topic", topic, "--partition", "0-1")[0] == 0
    text = exported.replace(":46", ":32").encode()
    status, out, err = command("offsets", "import", "--input-file", "-", stdin=text)
    assert status == 0, err
    assert f"{topic}-0-1: none -> 31" in out
    assert "position 32 is inside an entry; set to the entry's start, 31" in err


# -- consume and produce -----------------------------------------------------------------------------------------------


def test_consume_without_a_group(command: Run, topic: str) -> None:
    read = ["consume", "--topic", topic, "--until-end", "--partition", "0-1"]
    assert command(*read, "-f", r"%p %o %s\n")[1] == "0-1 0 first\n0-1 15 second\n0-1 31 third\n"
    assert command(*read, "--offset", "31", "--print-partition", "--print-offset")[1] == "0-1\t31\tthird\n"
    [entry] = [json.loads(line) for line in command(*read, "--offset", "31", "--json")[1].splitlines()]
    assert entry == {
        "topic": topic, "partition": None, "partition_node": "0-1", "offset": 31, "entry_index": 0, "key": None,
        "value": "third", "timestamp_ms": None,
    }  # fmt: skip
    status, _, err = command("consume", "--topic", topic, "--until-end", "--partition", "1")
    assert (status, f"topic {topic!r} has no partition 1; it has partitions 0-0, 0-1, 1-0, 1-1" in err) == (1, True)


def test_consume_in_a_group_commits_what_it_printed(cluster: Both, command: Run, topic: str, fresh_group: str) -> None:
    data = bytes(KAFKA07.encode_messages([b"a", b"b", b"c"], "gzip", None, None))
    send_set(cluster, topic, "1-1", data)
    member = ["consume", "--topic", topic, "--group", fresh_group, "--from-beginning", "--property", "consumer.id=ann"]
    with Running(*member, "--zookeeper", cluster.zookeeper_connect, "-f", r"%p %o %s\n") as consumer:
        assert sorted(consumer.wait_lines(7)) == [
            "0-1 0 first", "0-1 15 second", "0-1 31 third", "1-0 0 elsewhere", "1-1 0 a", "1-1 0 b", "1-1 0 c",
        ]  # fmt: skip
        status, out, err = command("verify", fresh_group, "--patience", "5")
        assert (status, "assigned by range" in out) == (0, True), out + err
        status, _, err = command("release", fresh_group, topic, "0-1")
        assert (status, "which is registered" in err) == (1, True)
        assert consumer.end() == 0
    rows = json.loads(command("offsets", "get", fresh_group, "--json")[1])["partitions"]
    assert {row["partition_node"]: row["offset"] for row in rows} == {"0-0": 0, "0-1": 46, "1-0": 19, "1-1": len(data)}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("3:5", "the partition does not exist; the topic has 0-0, 0-1, 1-0, 1-1"),
        ("9-1:0", "the partition does not exist, because broker 9 is not registered with it; the topic has 0-0, 0-1"),
        ("x-1:0", "the partition 'x-1' is neither a number from 0 to 999999999 without leading zeros, nor a name "
                  "of Kafka"),
        ("0-1:-5", "the offset '-5' is not a number from 0 to"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be_imported_are_named_with_what_can(
    command: Run, topic: str, fresh_group: str, line: str, reason: str
) -> None:
    text = f"/consumers/{fresh_group}/offsets/{topic}/{line}\n".encode()
    status, _, err = command("offsets", "import", "--input-file", "-", stdin=text)
    assert (status, err.count("\n")) == (1, 1)
    assert reason in err


def test_stored_positions_within_entries_are_named_with_the_remedy(command: Run, topic: str, fresh_group: str) -> None:
    place = ["offsets", "set", fresh_group, "--topic", topic, "--partition", "0-1"]
    assert command(*place, "--to", "20", "--force")[0] == 0
    for arguments in (["describe", fresh_group], ["offsets", "get", fresh_group]):
        assert "! " + f"{topic}-0-1: no entry seems to start at the stored offset 20 (" in command(*arguments)[1]
    status, out, _ = command("verify", fresh_group, "--members", "0", "--patience", "0")
    assert (status, f"{topic}-0-1: its stored offset 20 is inside the entry from 15 to 31" in out) == (1, True)
    fix = next(line for line in out.splitlines() if "fix:" in line).split("fix: zkconsumer ")[1].split(", or")[0]
    assert command(*fix.split())[0] == 0
    assert command("verify", fresh_group, "--members", "0", "--patience", "0")[0] == 0


def test_produce_says_what_is_known_and_makes_topics(command: Run, topic: str) -> None:
    new = f"{topic}-new"
    status, _, err = command("produce", "--topic", new, "--no-create", stdin=b"a\n")
    assert (status, "does not exist" in err) == (1, True)
    status, _, err = command("produce", "--topic", new, "--partition", "0-1", stdin=b"a\n")
    assert (status, "leave --partition out, or choose a partition that it will have: 0-0, 1-0" in err) == (1, True)
    status, _, err = command("produce", "--topic", new, stdin=b"a\nb\n")
    assert status == 0
    made, sent = err.splitlines()
    assert made.endswith("brokers of Kafka 0.7 create it with its first message")
    assert sent == "Produced 2 messages; Kafka 0.7 acknowledges no messages: the brokers have received these"

    def messages() -> list[str]:
        return sorted(command("consume", "--topic", new, "--until-end", "-f", r"%p %s\n")[1].splitlines())

    wait_until(lambda: messages() == ["0-0 a", "1-0 b"], TIMEOUT_S, "the topic", state=messages)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_produce_to_one_partition(command: Run, topic: str, codec: str) -> None:
    status, _, err = command("produce", "--topic", topic, "--partition", "1-1", "--codec", codec, stdin=b"x\ny\n")
    assert status == 0, err

    def lines() -> str:
        return command("consume", "--topic", topic, "--until-end", "--partition", "1-1")[1]

    wait_until(lambda: lines() == "x\ny\n", TIMEOUT_S, "the messages", state=lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--key-separator", ":"], "Kafka 0.7 stores no keys; leave --key-separator out"),
        (["--acks", "-1"], "Kafka 0.7 has no replicas that could acknowledge a message; leave --acks out"),
        (["--codec", "lz4"], "Kafka 0.7 does not support lz4; choose one of none, gzip, snappy"),
        (["--partition", "0-9"], "has no partition 0-9; it has 0-0, 0-1, 1-0, 1-1"),
        (["--partition", "1"], "has no partition 1; it has 0-0, 0-1, 1-0, 1-1"),
    ],
)
def test_produce_refuses_what_07_does_not_have(command: Run, topic: str, arguments: list[str], sentence: str) -> None:
    status, _, err = command("produce", "--topic", topic, *arguments, stdin=b"a:b\n")
    assert status == 1
    assert sentence in err
    assert "a bug in zkconsumer" not in err


@pytest.mark.parametrize("arguments", [["create", "{}-new", "--partitions", "3"], ["grow", "{}", "--partitions", "8"],
                                       ["delete", "{}"]])  # fmt: skip
def test_topics_are_made_by_messages(command: Run, topic: str, arguments: list[str]) -> None:
    status, _, err = command("topics", *[each.format(topic) for each in arguments])
    assert status == 1, err
    assert "the cluster is of Kafka 0.7, where a broker creates a topic when its first message arrives" in err


def test_the_exporter_reads_the_cluster(cluster: Both, command: Run, topic: str, fresh_group: str) -> None:
    exporting = pytest.importorskip("zkconsumer.lag_exporter")
    command("offsets", "set", fresh_group, "--topic", topic, "--to", "earliest")
    with exporting.LagExporter(cluster.zookeeper_connect) as exporter:
        wait_until(lambda: exporter.state().report is not None, TIMEOUT_S, "the first round")
        metrics: list[Any] = list(exporting.LagCollector(exporter).collect())
    [lag] = [metric for metric in metrics if metric.name == "zkconsumer_group_lag_messages"]
    found = {sample.labels["partition"]: sample.value for sample in lag.samples
             if sample.labels["group"] == fresh_group}  # fmt: skip
    assert found == {"0-0": 0.0, "0-1": 46.0, "1-0": 19.0, "1-1": 0.0}
    assert "in Kafka 0.7 in bytes" in lag.documentation
