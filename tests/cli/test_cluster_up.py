"""`zkconsumer cluster`: servers that come and go with the command, on ports and in folders that are asked for."""

from __future__ import annotations

import itertools
import json
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kafka_07 import produce_07

from tests.cli.command_line import TIMEOUT_S, Running, command, run
from zkconsumer.admin.values import count_of
from zkconsumer.cli.program import program
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.kafka import kafka_versions
from zkconsumer.testing.processes import free_ports
from zkconsumer.testing.waiting import wait_until

EMBEDDED: tuple[str, ...] = ()
REAL = ("--kafka", "0.8.2.2")
real = pytest.mark.real


class Up:
    """A running `zkconsumer cluster up`, and what it says."""

    def __init__(self, command: Running) -> None:
        wait_until(
            lambda: "Ctrl-C stops everything." in command.lines() or command.process.poll() is not None,
            60, "the cluster to be up", state=lambda: (command.lines(), command.errors()),
        )  # fmt: skip
        self.command = command
        self.text = "\n".join(command.lines())
        assert self.text, command.errors()

    def said(self, name: str) -> str:
        found = re.search(rf"^{name} +(\S.*)$", self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]

    def addresses(self) -> list[str]:
        hosts = self.said("ZooKeeper").partition("/")[0]
        return [hosts, *self.said("brokers").split(",")]

    def wait_closed(self) -> None:
        for address in self.addresses():
            wait_until(lambda address=address: not is_open(address), 10, f"{address} to be closed")  # type: ignore[misc]

    def produce(self, topic: str, lines: Sequence[str]) -> None:
        text = "".join(f"{line}\n" for line in lines).encode()
        got = run("produce", "--zookeeper", self.said("ZooKeeper"), "--topic", topic, stdin=text)
        assert got.stderr == f"Produced {count_of(len(lines), 'message')}\n".encode()

    def consume(self, topic: str, count: int) -> list[str]:
        where = ("--zookeeper", self.said("ZooKeeper"), "--topic", topic)
        got = run("consume", *where, "--from-beginning", "--max-messages", str(count))
        return sorted(got.stdout.decode().split())


def is_open(address: str) -> bool:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False


def two_free_ports() -> tuple[str, str]:
    zookeeper, broker = free_ports(2)
    return str(zookeeper), str(broker)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(program, ("cluster", *arguments), prog_name="zkconsumer")


@real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize(
    ("kind", "words"),
    [(EMBEDDED, "1 embedded broker, protocol of Kafka 0.8.2.2"), (REAL, "1 real broker of Kafka 0.8.2.2")],
    ids=["embedded", "real"],
)
def test_a_cluster_comes_up_and_leaves_no_process_and_no_file(
    kind: tuple[str, ...], words: str, number: int, tmp_path: Path
) -> None:
    find_java()
    maven.jars("0.8.2.2")
    with Running("cluster", "up", *kind, "--topic", "clicks:3", scratch=tmp_path) as command:
        up = Up(command)
        assert up.said("cluster") == words
        assert up.said("topic") == "clicks: 3 partitions"
        shown = re.search(r"seq 1000 \| zkconsumer (produce .*)", up.text)
        assert shown is not None
        assert run(*shown[1].split(), "--codec", "snappy", stdin=b"1\n2\n").stderr == b"Produced 2 messages\n"
        assert list(tmp_path.iterdir())
        status = command.end(number)
        assert status == (-number if number == signal.SIGKILL else 0)
        up.wait_closed()
        wait_until(lambda: not list(tmp_path.iterdir()), 20, "no file left", state=lambda: list(tmp_path.rglob("*")))


@real
def test_two_clusters_side_by_side_do_not_meet() -> None:
    find_java()
    with (
        Running("cluster", "up", "--chroot", "/kafka/one", "--topic", "clicks:2:2", "--brokers", "2") as one,
        Running("cluster", "up", "--topic", "clicks") as two,
    ):
        first, second = Up(one), Up(two)
        assert first.said("ZooKeeper").endswith("/kafka/one")
        assert not set(first.addresses()) & set(second.addresses())
        first.produce("clicks", ["of the first"])
        second.produce("clicks", ["of_the_second"])
        assert second.consume("clicks", 1) == ["of_the_second"]
        assert first.consume("clicks", 1) == ["first", "of", "the"]
        assert (one.end(), two.end()) == (0, 0)


@real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_goes_on_with_its_data_on_its_ports(number: int, tmp_path: Path) -> None:
    find_java()
    zookeeper, port = two_free_ports()
    arguments = ("--zookeeper-port", zookeeper, "--port", port, "--topic", "clicks:2", "--data", str(tmp_path / "data"))
    values = [str(n) for n in range(10, 50)]
    with Running("cluster", "up", *arguments) as command:
        up = Up(command)
        assert up.addresses() == [f"127.0.0.1:{zookeeper}", f"127.0.0.1:{port}"]
        assert up.said("data") == str(tmp_path / "data")
        up.produce("clicks", values)
        command.end(number)
        up.wait_closed()
    with Running("cluster", "up", *arguments) as command:
        up = Up(command)
        assert up.said("topic") == "clicks: 2 partitions"
        assert up.consume("clicks", len(values)) == values
        assert command.end() == 0


@real
def test_a_cluster_of_kafka_0_7_has_its_topics_on_each_broker_and_keeps_its_data(tmp_path: Path) -> None:
    find_java()
    arguments = ("--generation", "0.7", "--brokers", "2", "--topic", "clicks:3", "--data", str(tmp_path / "data"))
    ends = []
    for _ in range(2):
        with Running("cluster", "up", *arguments) as command:
            up = Up(command)
            assert up.said("cluster") == "2 embedded brokers, protocol of Kafka 0.7.2"
            assert up.said("topic") == "clicks: 6 partitions"
            port = int(up.said("brokers").split(",")[1].rpartition(":")[2])
            ends.append(produce_07(port, "clicks", 2, [b"one"]))
            assert command.end() == 0
            up.wait_closed()
    assert ends == [13, 26]


def test_brokers_without_zookeeper_need_no_java_and_name_their_addresses() -> None:
    with Running("cluster", "up", "--generation", "4.3", "--topic", "clicks:2") as command:
        up = Up(command)
        assert up.said("cluster") == "1 embedded broker, protocol of Kafka 4.3.1"
        where = ("--bootstrap-server", up.said("brokers"), "--topic", "clicks")
        assert run("produce", *where, stdin=b"one\ntwo\n").returncode == 0
        assert sorted(run("consume", *where, "--until-end").stdout.split()) == [b"one", b"two"]
        assert not any(line.startswith("ZooKeeper") for line in command.lines())
        assert command.end() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kafka", "0.8.2.2", "--generation", "0.7"], "--kafka already chooses the brokers"),
        (["--generation", "0.7", "--brokers", "2", "--topic", "clicks:3:2"], "clicks: Kafka 0.7 has no replicas"),
        (["--generation", "0.6"], "'0.6' is not one of '0.8', '0.7', '0.9', '0.10', '0.11', '1.1', '2.8', '3.9',"),
    ],
)
def test_what_a_generation_cannot_have_is_refused(arguments: list[str], said: str) -> None:
    got = invoke("up", *arguments)
    assert got.exit_code == 2
    assert said in got.stderr


@real
def test_data_that_another_cluster_has_is_left_alone(tmp_path: Path) -> None:
    find_java()
    with Running("cluster", "up", "--data", str(tmp_path)) as command:
        up = Up(command)
        second = run("cluster", "up", "--data", str(tmp_path))
        assert second.returncode == 1
        assert second.stderr.decode().splitlines()[1:] == [
            f"zkconsumer: the cluster cannot be started: the data folder {tmp_path} belongs to another running broker"
        ]
        assert all(is_open(address) for address in up.addresses())
        assert command.end() == 0


@pytest.mark.parametrize("kind", [EMBEDDED, REAL], ids=["embedded", "real"])
@pytest.mark.parametrize(("option", "user"), [("--zookeeper-port", "ZooKeeper"), ("--port", "broker 0")])
@real
def test_a_port_that_is_taken_is_one_sentence(kind: tuple[str, ...], option: str, user: str) -> None:
    maven.jars("0.8.2.2")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        got = invoke("up", *kind, option, str(port))
    assert got.exit_code == 1
    assert got.stderr.splitlines()[1:] == [
        f"zkconsumer: the cluster cannot be started: port {port} of 127.0.0.1, wanted for {user}, is taken; "
        "choose another one"
    ]


@real
def test_a_cluster_without_zookeeper_names_its_brokers_alone() -> None:
    with Running("cluster", "up", "--kafka", "4.3.1", "--topic", "clicks:2") as started:
        up = Up(started)
        assert up.text.splitlines()[0] == "cluster    1 real broker of Kafka 4.3.1"
        assert "ZooKeeper" not in up.text
        assert "topic      clicks: 2 partitions" in up.text
        (address,) = up.said("brokers").split(",")
        assert is_open(address)
        shown = re.search(r"seq 1000 \| zkconsumer (produce .*)", up.text)
        assert shown is not None
        assert run(*shown[1].split(), stdin=b"1\n2\n").stderr == b"Produced 2 messages\n"
        shown = re.search(r"zkconsumer (consume .*)", up.text)
        assert shown is not None
        assert sorted(run(*shown[1].split(), "--max-messages", "2").stdout.split()) == [b"1", b"2"]
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(TIMEOUT_S) == 0
    assert not is_open(address)


@real
def test_more_partitions_than_files_may_be_open_at_first() -> None:
    find_java()
    arguments = command(["cluster", "up", "--topic", "clicks:150"])
    limited = ["sh", "-c", 'ulimit -S -n 128; exec "$@"', "sh", *arguments]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        shown = list(itertools.takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
        assert "topic      clicks: 150 partitions\n" in shown, process.stderr.read()
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kafka", "0.8.3"], "Kafka 0.8.3: known versions are 0.7.2, 0.8.0, .*, 4.3.1; the nearest is 0.8.2.2"),
        (["--kafka", "embedded"], "Kafka embedded: known versions are 0.7.2, 0.8.0, .*, 4.3.1"),
        (
            ["--kafka", "4.3.1", "--zookeeper-port", "2181"],
            "zookeeper, zookeeper_port, chroot and login are for clusters with ZooKeeper: Kafka 4.3.1 runs .*",
        ),
        (["--chroot", "kafka"], "chroot 'kafka': must be a path that starts with / and does not end with it"),
        (["--port", "65530", "--brokers", "7"], "port 65536 for broker 6: must be from 1 to 65535"),
        (["--port", "2181", "--zookeeper-port", "2181"], "port 2181 is wanted for ZooKeeper and for broker 0"),
    ],
)
def test_an_impossible_cluster_is_refused_in_one_sentence(arguments: list[str], said: str) -> None:
    got = invoke("up", *arguments)
    assert got.exit_code == 1
    assert re.fullmatch(f"zkconsumer: {said}\n", got.stderr)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    folder = tmp_path / "file" / "data"
    got = invoke("up", "--data", str(folder))
    assert got.exit_code == 1
    assert got.stderr.splitlines()[1:] == [
        f"zkconsumer: the cluster cannot be started: the data folder {folder} cannot be written: Not a directory"
    ]


def test_only_embedded_brokers_keep_their_data(tmp_path: Path) -> None:
    got = invoke("up", "--kafka", "0.8.2.2", "--data", str(tmp_path))
    assert got.exit_code == 2
    assert "the data of real brokers cannot be kept; leave --data or --kafka out" in got.stderr


EMBEDDED = ("0.8.2.2", "0.7.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2", "4.3.1")


def test_the_versions_distinguish_embedded_and_real_brokers() -> None:
    entries = json.loads(invoke("versions", "--json").stdout)["versions"]
    assert [(entry["version"], entry["brokers"]) for entry in entries] == [
        *((version, "embedded") for version in EMBEDDED),
        *((version, "real") for version in kafka_versions()),
    ]
    assert [entry["version"] for entry in entries if not entry["needs"].startswith("Java")] == ["4.3.1"]
    assert entries[8]["needs"] == "nothing"
    assert entries[0]["needs"].endswith("ZooKeeper")
    shown = invoke("versions").stdout
    for entry in entries:
        assert re.search(rf"^{entry['version']} +{entry['brokers']} +{entry['needs']}$", shown, re.MULTILINE)
