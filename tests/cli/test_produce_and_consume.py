"""`zkconsumer produce` and `zkconsumer consume` on real brokers, as processes with pipes and signals."""

from __future__ import annotations

import array
import fcntl
import json
import signal
import subprocess
import sys
import termios
import uuid
from collections import Counter
from collections.abc import Callable
from typing import IO

import pytest
from kazoo.exceptions import NoNodeError

from tests.cli.command_line import TIMEOUT_S, Running, command, run
from zkconsumer.admin.values import count_of
from zkconsumer.producer.partitioners import partition_of_key
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

Topic = Callable[..., str]


@pytest.fixture
def topic(kafka_0822: KafkaCluster) -> Topic:
    """Makes topics: `topic(partitions)`."""

    def make(partitions: int = 1) -> str:
        name = f"cli-{uuid.uuid4().hex[:10]}"
        kafka_0822.create_topic(name, partitions)
        return name

    return make


@pytest.fixture
def zk(kafka_0822: KafkaCluster) -> tuple[str, str]:
    return "--zookeeper", kafka_0822.zookeeper_connect


def produce(cluster: KafkaCluster, topic: str, lines: list[bytes], *options: str) -> None:
    done = run("produce", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, *options,
               stdin=b"\n".join(lines) + b"\n")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"Produced {count_of(len(lines), 'message')}\n".encode()


def stored(cluster: KafkaCluster, group: str, topic: str) -> dict[int, int]:
    """Partition -> offset in ZooKeeper."""
    path = f"/consumers/{group}/offsets/{topic}"
    if cluster.client.exists(path) is None:
        return {}
    return {int(name): int(cluster.client.get(f"{path}/{name}")[0]) for name in cluster.client.get_children(path)}


def bytes_in(pipe: IO[bytes]) -> int:
    """How much waits in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def holders(cluster: KafkaCluster, group: str, topic: str) -> Counter[bytes]:
    """Thread id -> partitions it owns."""
    owners = f"/consumers/{group}/owners/{topic}"
    found: Counter[bytes] = Counter()
    for name in cluster.client.get_children(owners):
        try:
            found[cluster.client.get(f"{owners}/{name}")[0]] += 1
        except NoNodeError:  # released since the listing
            pass
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_every_key_and_value_comes_back(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], codec: str
) -> None:
    name = topic(4)
    lines = [b"key-%d\x00:value \xff%d" % (number % 7, number) for number in range(1000)]
    produce(kafka_0822, name, lines, "--key-separator", ":", "--codec", codec, "--acks", "-1")
    got = run("consume", *zk, "--topic", name, "--from-beginning", "--max-messages", "1000", "--partition", "--key",
              "--key-separator", ":", "--streams", "2")  # fmt: skip
    assert got.returncode == 0, got.stderr
    rows = [line.split(b":", 1) for line in got.stdout.splitlines()]
    assert sorted(row[1] for row in rows) == sorted(lines)
    for partition, line in rows:
        assert int(partition) == partition_of_key(line.split(b":")[0], range(4))
    assert got.stderr == b"Consumed 1000 messages\n"


def test_json_lines_say_where_each_message_stands(kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]) -> None:
    name = topic(2)
    produce(kafka_0822, name, [b"a", b"\xfe"], "--partition", "1")
    got = run("consume", *zk, "--whitelist", name, "--from-beginning", "--max-messages", "2", "--json")
    assert [json.loads(line) for line in got.stdout.splitlines()] == [
        {"topic": name, "partition": 1, "offset": 0, "key": None, "value": "a", "timestamp_ms": None},
        {"topic": name, "partition": 1, "offset": 1, "key": None, "value": "/g==", "value_encoding": "base64",
         "timestamp_ms": None},
    ]  # fmt: skip


def test_lines_without_a_key_go_to_one_partition_after_the_other(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]
) -> None:
    name = topic(4)
    produce(kafka_0822, name, [b"%d" % number for number in range(8)])
    got = run("consume", *zk, "--topic", name, "--from-beginning", "--max-messages", "8", "--partition")
    assert sorted(got.stdout.split()[::2]) == [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3"]


def test_a_group_goes_on_where_it_stopped_and_no_sooner(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], fresh_group: str
) -> None:
    name = topic()
    produce(kafka_0822, name, [b"%d" % number for number in range(10)])
    arguments = ("consume", *zk, "--topic", name, "--group", fresh_group, "--max-messages", "4")
    assert run(*arguments, "--from-beginning").stdout.split() == [b"0", b"1", b"2", b"3"]
    assert stored(kafka_0822, fresh_group, name) == {0: 4}
    assert run(*arguments).stdout.split() == [b"4", b"5", b"6", b"7"]
    assert stored(kafka_0822, fresh_group, name) == {0: 8}


def test_from_beginning_is_refused_for_a_group_with_offsets_until_they_are_deleted(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], fresh_group: str
) -> None:
    name, other = topic(), topic()
    produce(kafka_0822, name, [b"0", b"1"])
    kafka_0822.client.create(f"/consumers/{fresh_group}/offsets/{name}/0", b"2", makepath=True)
    kafka_0822.client.create(f"/consumers/{fresh_group}/offsets/{other}/0", b"7", makepath=True)
    arguments = ("consume", *zk, "--topic", name, "--group", fresh_group, "--from-beginning", "--max-messages", "2")
    refused = run(*arguments)
    assert refused.returncode == 1
    assert refused.stdout == b""
    assert refused.stderr.startswith(
        b"zkconsumer: group '%b' already has offsets for 1 partition, " % fresh_group.encode()
    )
    assert run(*arguments, "--delete-offsets").stdout.split() == [b"0", b"1"]
    assert stored(kafka_0822, fresh_group, other) == {0: 7}


def test_a_generated_group_is_removed_afterwards(kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]) -> None:
    name = topic()
    produce(kafka_0822, name, [b"x"])
    before = set(kafka_0822.client.get_children("/consumers"))
    assert run("consume", *zk, "--topic", name, "--from-beginning", "--timeout-ms", "300").stdout == b"x\n"
    assert set(kafka_0822.client.get_children("/consumers")) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_what_was_printed_and_leaves_at_once(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], fresh_group: str, number: int
) -> None:
    name = topic(2)
    produce(kafka_0822, name, [b"%d" % line for line in range(50)])
    with Running("consume", *zk, "--topic", name, "--group", fresh_group, "--from-beginning") as consumer:
        consumer.wait_lines(50)
        assert consumer.end(number) == 0
        # Gone the moment the process has ended: a session that had to run out would still be there.
        assert kafka_0822.client.get_children(f"/consumers/{fresh_group}/ids") == []
        assert kafka_0822.client.get_children(f"/consumers/{fresh_group}/owners/{name}") == []
        assert stored(kafka_0822, fresh_group, name) == {0: 25, 1: 25}
        assert consumer.errors() == "Consumed 50 messages\n"


def test_under_nohup_and_in_the_background_of_a_script_it_goes_on_until_sigterm(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]
) -> None:
    name = topic()
    ignoring = ("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh")
    with Running("consume", *zk, "--topic", name, "--from-beginning", through=ignoring) as consumer:
        produce(kafka_0822, name, [b"before"])
        consumer.wait_lines(1)
        for number in (signal.SIGHUP, signal.SIGINT):
            consumer.process.send_signal(number)
        produce(kafka_0822, name, [b"after"])
        assert consumer.wait_lines(2) == ["before", "after"]
        assert consumer.end() == 0
        assert consumer.errors() == "Consumed 2 messages\n"


BLOCKED = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_was_blocked_at_the_start_ends_it_all_the_same(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], fresh_group: str, number: int
) -> None:
    arguments = ("consume", *zk, "--topic", topic(), "--group", fresh_group)
    with Running(*arguments, through=(sys.executable, "-c", BLOCKED)) as consumer:
        members = f"/consumers/{fresh_group}/ids"
        wait_until(
            lambda: kafka_0822.client.exists(members) and kafka_0822.client.get_children(members), TIMEOUT_S, "a member"
        )
        assert consumer.end(number) == 0
        assert consumer.errors() == "Consumed 0 messages\n"


def test_a_reader_that_has_enough_ends_it_quietly(kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]) -> None:
    name = topic()
    produce(kafka_0822, name, [b"%d" % line for line in range(5)])
    # Nothing more is ever produced: that the reader has gone must be noticed without another write.
    with subprocess.Popen(
        command(["consume", *zk, "--topic", name, "--from-beginning"]), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"0\n"
        consumer.stdout.close()
        assert consumer.wait(TIMEOUT_S) == 0
        assert consumer.stderr.read().startswith(b"Consumed ")


def test_lines_that_never_left_are_never_committed(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], fresh_group: str
) -> None:
    name = topic()
    size = 1000
    produce(kafka_0822, name, [(b"%d " % line).ljust(size, b"x") for line in range(500)])
    with Running("consume", *zk, "--topic", name, "--group", fresh_group, "--from-beginning",
                 "--property", "auto.commit.interval.ms=100", pipe=True) as consumer:  # fmt: skip
        pipe = consumer.process.stdout
        assert pipe is not None
        # Nobody reads: the pipe fills up, and the rest waits in the process.
        wait_until(lambda: bytes_in(pipe) > 32 * size, TIMEOUT_S, "a full pipe", state=lambda: bytes_in(pipe))
        # Before the end: a session that is lost on a busy machine takes with it what was printed and not committed.
        wait_until(lambda: stored(kafka_0822, fresh_group, name).get(0, 0) > 0, TIMEOUT_S, "a commit")
        assert consumer.end() == 0, consumer.errors()
        complete = pipe.read().count(b"\n")
        assert 0 < stored(kafka_0822, fresh_group, name)[0] <= complete < 500


def test_two_consumers_share_and_hand_over_without_a_message_lost_or_repeated(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str], fresh_group: str
) -> None:
    name = topic(4)
    arguments = ("consume", *zk, "--topic", name, "--group", fresh_group, "--property", "auto.offset.reset=smallest")
    with Running(*arguments) as first:
        produce(kafka_0822, name, [b"%d" % line for line in range(400)])
        first.wait_lines(400)
        with Running(*arguments) as second:
            wait_until(
                lambda: sorted(holders(kafka_0822, fresh_group, name).values()) == [2, 2], TIMEOUT_S, "two owners"
            )
            produce(kafka_0822, name, [b"%d" % line for line in range(400, 800)])
            wait_until(lambda: len(first.lines()) + len(second.lines()) >= 800, TIMEOUT_S, "800 lines")
            assert second.lines()
            assert second.end() == 0
            produce(kafka_0822, name, [b"%d" % line for line in range(800, 1200)])
            wait_until(lambda: len(first.lines()) + len(second.lines()) >= 1200, TIMEOUT_S, "1200 lines")
            assert first.end() == 0
            assert sorted(map(int, first.lines() + second.lines())) == list(range(1200))


def test_no_message_within_the_time_out_ends_it(topic: Topic, zk: tuple[str, str]) -> None:
    got = run("consume", *zk, "--topic", topic(), "--timeout-ms", "200")
    assert (got.returncode, got.stdout, got.stderr) == (0, b"", b"Consumed 0 messages\n")


def test_a_missing_topic_is_reported_and_waited_for(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]
) -> None:
    there = topic()
    with Running("consume", *zk, "--topic", there + "x", "--from-beginning", "--max-messages", "1") as consumer:
        wait_until(lambda: "does not exist" in consumer.errors(), TIMEOUT_S, "the warning", state=consumer.errors)
        assert f"topic {there + 'x'!r} does not exist (did you mean {there!r}?)" in consumer.errors()
        kafka_0822.create_topic(there + "x")
        produce(kafka_0822, there + "x", [b"came"])
        assert consumer.wait() == 0
        assert consumer.lines() == ["came"]


def test_several_topics_are_read_by_several_streams_of_one_group(
    kafka_0822: KafkaCluster, topic: Topic, zk: tuple[str, str]
) -> None:
    one, two = topic(3), topic(2)
    for name in (one, two):
        produce(kafka_0822, name, [f"{name} {number}".encode() for number in range(50)])
    group = f"both-{uuid.uuid4().hex[:8]}"
    got = run("consume", *zk, "--topic", one, "--topic", two, "--topic", one, "--group", group, "--from-beginning",
              "--streams", "2", "--max-messages", "100", "--json")  # fmt: skip
    assert got.returncode == 0, got.stderr
    read = [json.loads(line) for line in got.stdout.splitlines()]
    assert {(each["topic"], each["value"]) for each in read} == {
        (name, f"{name} {number}") for name in (one, two) for number in range(50)
    }
    assert sum(stored(kafka_0822, group, one).values()) == sum(stored(kafka_0822, group, two).values()) == 50


def test_each_missing_topic_of_several_is_reported(topic: Topic, zk: tuple[str, str]) -> None:
    there = topic()
    got = run("consume", *zk, "--topic", there, "--topic", there + "x", "--topic", there + "y", "--timeout-ms", "300")
    assert got.returncode == 0
    assert got.stderr.decode().splitlines()[:2] == [
        f"topic {there + missing!r} does not exist (did you mean {there!r}?); waiting for it to be created"
        for missing in "xy"
    ]


@pytest.mark.parametrize("command_line", [["consume", "--topic", "t"], ["produce", "--topic", "t"], ["describe", "g"]])
def test_a_chroot_that_is_not_there_is_named(kafka_0822: KafkaCluster, command_line: list[str]) -> None:
    got = run(*command_line, "--zookeeper", kafka_0822.zookeeper_connect + "/nowhere")
    assert got.returncode == 1
    assert got.stderr.startswith(b"zkconsumer: the chroot '/nowhere' does not exist in ZooKeeper")
    assert got.stderr.count(b"\n") == 1
    assert kafka_0822.client.exists("/nowhere") is None


def test_a_partition_that_is_not_there_is_refused(topic: Topic, zk: tuple[str, str]) -> None:
    name = topic(2)
    got = run("produce", *zk, "--topic", name, "--partition", "2", stdin=b"x\n")
    assert (got.returncode, got.stderr.decode()) == (
        1, f"zkconsumer: topic {name!r} has no partition 2; it has 0, 1\n",
    )  # fmt: skip


def test_a_message_that_the_broker_refuses_is_reported_with_the_reason(topic: Topic, zk: tuple[str, str]) -> None:
    name = topic()
    larger = ("--property", "message.max.bytes=3000000")
    got = run("produce", *zk, "--topic", name, *larger, stdin=b"small\n" + b"x" * 2_000_000 + b"\nsmall\n")
    assert got.returncode == 1
    said = got.stderr.decode()
    assert said.startswith(f"Produced 2 messages\nzkconsumer: line 2 was not sent: a message for {name}")
    assert "MessageSizeTooLarge" in said


def test_a_topic_comes_into_being_where_brokers_make_it(kafka_0822: KafkaCluster, zk: tuple[str, str]) -> None:
    name = f"made_by_brokers_{uuid.uuid4().hex}"  # like no other topic, or that one would be named as a correction
    got = run("produce", *zk, "--topic", name, stdin=b"first\n")
    created = f"topic {name!r} did not exist; the brokers created it with 2 partitions"
    assert (got.returncode, got.stderr.decode()) == (0, f"{created}\nProduced 1 message\n")
    assert run("consume", *zk, "--topic", name, "--from-beginning", "--max-messages", "1").stdout == b"first\n"


def test_a_leader_that_moves_is_found_again(kafka_0822: KafkaCluster, zk: tuple[str, str]) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    kafka_0822.create_topic(name, assignment={0: [0, 1]})
    with subprocess.Popen(
        command(["produce", *zk, "--topic", name]), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as producer:  # fmt: skip
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write(b"before\n")
        producer.stdin.flush()
        arguments = ("consume", *zk, "--topic", name, "--from-beginning", "--max-messages")
        assert run(*arguments, "1").stdout == b"before\n"
        kafka_0822.move_leader(name, 0, 1)
        producer.stdin.write(b"after\n")
        producer.stdin.close()
        assert producer.wait(TIMEOUT_S) == 0
        assert producer.stderr.read() == b"Produced 2 messages\n"
    assert run(*arguments, "2").stdout == b"before\nafter\n"


@pytest.mark.catalogue("I9")
def test_without_zookeeper_ctrl_c_ends_it_in_time_and_names_what_is_not_committed(
    kafka_0822: KafkaCluster, topic: Topic, fresh_group: str
) -> None:
    """The session lasts longer than the test waits."""
    name = topic()
    produce(kafka_0822, name, [b"%d" % number for number in range(5)])
    with TcpProxy(kafka_0822.zookeeper_hosts) as link, Running(
        "consume", "--zookeeper", kafka_0822.zookeeper_connect.replace(kafka_0822.zookeeper_hosts, link.address),
        "--topic", name, "--group", fresh_group, "--from-beginning", "--property", "zookeeper.session.timeout.ms=60000",
        "--property", "auto.commit.interval.ms=3600000",
    ) as consumer:  # fmt: skip
        assert len(consumer.wait_lines(5)) == 5
        link.stall()
        assert consumer.end(signal.SIGINT) == 1
        assert "the last positions of" in consumer.errors()
        assert "no answer from ZooKeeper" in consumer.errors()


def test_zookeeper_33_is_named_once_by_commands_that_write_there_and_not_by_others(fresh_group: str) -> None:
    """It has no multi: claims, commits and releases are not fenced."""
    with ZooKeeperServer(version="zk-3.3.6") as server, EmbeddedCluster(1, zookeeper=server) as cluster:
        cluster.create_topic("clicks", 1)
        cluster.produce("clicks", [b"one"])
        where = ("--zookeeper", cluster.zookeeper_connect)
        for words, warnings in (
            (["topics"], 0), (["groups"], 0), (["lag", "--all"], 0),
            (["consume", "--topic", "clicks", "--offset", "earliest", "--until-end"], 0),
            (["consume", "--topic", "clicks", "--group", fresh_group, "--from-beginning", "--max-messages", "1"], 1),
            (["describe", fresh_group], 0), (["groups", "delete", fresh_group], 1),
        ):  # fmt: skip
            done = run(*words, *where)
            assert done.returncode == 0, done.stderr
            assert (words, done.stderr.count(b"is 3.3: it has no multi")) == (words, warnings)
