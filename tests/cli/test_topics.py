"""`zkconsumer topics` on real clusters, also with a broker that died."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.command_line import TIMEOUT_S, command
from zkconsumer.cli.program import program
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until


def topics(cluster: KafkaCluster, *arguments: str) -> Result:
    call = ["topics", "--zookeeper", cluster.zookeeper_connect, *arguments]
    return CliRunner().invoke(program, call, prog_name="zkconsumer")


def test_leaders_replicas_and_offsets_are_shown(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, 2, 2)
    load(kafka_0822, topic, 3, partitions=[1])
    found: dict[str, Any] = {}

    def replicated() -> bool:
        """A leader tells of a message once its followers have it."""
        found.update(json.loads(topics(kafka_0822, topic, "--json").stdout))
        return not found["problems"] and found["partitions"][1]["latest"] == 3

    wait_until(replicated, TIMEOUT_S, "both replicas to have it all", state=lambda: found)
    keys = ("partition", "leader", "replicas", "earliest", "latest")
    rows = [[row[key] for key in keys] for row in found["partitions"]]
    assert rows == [[0, 0, [0, 1], 0, 0], [1, 1, [1, 0], 0, 3]]
    assert [sorted(row["isr"]) for row in found["partitions"]] == [[0, 1], [0, 1]]
    shown = topics(kafka_0822, topic)
    assert shown.stdout.startswith("1 topic, 2 partitions\n\nTOPIC")
    cells = [line.split()[:4] for line in shown.stdout.splitlines()[3:]]
    assert cells == [[topic, "0", "0", "0,1"], [topic, "1", "1", "1,0"]]


def test_without_names_all_topics_are_shown(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    names = {fresh_topic(), fresh_topic()}
    for name in names:
        kafka_0822.create_topic(name)
    found = json.loads(topics(kafka_0822, "--json").stdout)
    assert names <= {row["topic"] for row in found["partitions"]}


def test_a_missing_topic_is_reported_in_one_sentence_and_not_created(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    shown = topics(kafka_0822, f"{topic}s")
    assert shown.exit_code == 1
    assert shown.stderr == (
        f"zkconsumer: topic '{topic}s' does not exist in ZooKeeper at {kafka_0822.zookeeper_connect}; "
        f"did you mean {topic!r}?\n"
    )
    assert kafka_0822.client.exists(f"/brokers/topics/{topic}s") is None


@pytest.mark.real
def test_a_dead_broker_leaves_marks() -> None:
    with KafkaCluster("0.8.2.2", brokers=2) as cluster:
        cluster.create_topic("alone", assignment={0: [1]})
        cluster.create_topic("twice", assignment={0: [0, 1]})
        wait_until(lambda: topics(cluster, "--check").exit_code == 0, TIMEOUT_S, "replicas in sync")
        cluster.kill(1, expire=True)

        def problems() -> list[str]:
            return list(json.loads(topics(cluster, "--json").stdout)["problems"])

        # A broker that was the controller is missed a moment before its partitions are.
        wait_until(
            lambda: [each[:19] for each in problems()] == ["alone-0: leaderless", "twice-0: under-repl"],
            TIMEOUT_S, "both marks", state=problems,
        )  # fmt: skip
        shown = topics(cluster, "--check")
        assert shown.exit_code == 1
        alone, twice = (line.split() for line in shown.stdout.splitlines()[3:5])
        assert alone[:5] == ["alone", "0", "none", "!", "1"]
        assert alone[-2:] == ["-", "-"]
        assert twice == ["twice", "0", "0", "0,1", "0", "!", "0", "0"]


def on_terminal(*arguments: str, **environment: str) -> str:
    """What a command prints on a terminal."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command(arguments), stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", **environment},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:  # how Linux tells that nobody holds the other side any more
        pass
    finally:
        os.close(leader)
    assert child.wait(TIMEOUT_S) == 0, shown
    return shown.decode()


def test_colours_are_for_terminals_alone(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic)
    path = f"/brokers/topics/{topic}/partitions/0/state"
    state = json.loads(kafka_0822.client.get(path)[0])
    kafka_0822.client.set(path, json.dumps({**state, "isr": []}).encode())
    call = ("topics", topic, "--zookeeper", kafka_0822.zookeeper_connect)
    red = "\x1b[31m"
    assert f"{red}! {topic}-0: under-replicated" in on_terminal(*call)
    assert red not in on_terminal(*call, NO_COLOR="1")
    assert "\x1b" not in topics(kafka_0822, topic).stdout


def change(cluster: KafkaCluster, word: str, *arguments: str) -> Result:
    call = ["topics", word, "--zookeeper", cluster.zookeeper_connect, *arguments]
    return CliRunner().invoke(program, call, prog_name="zkconsumer")


def test_a_topic_is_created_grown_and_deleted(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    arguments = ["--partitions", "2", "--replication-factor", "2", "--config", "retention.ms=1000"]
    planned = change(kafka_0822, "create", topic, *arguments, "--dry-run", "--json")
    assert json.loads(planned.stdout)["written"] is False
    created = change(kafka_0822, "create", topic, *arguments, "--topic-config=segment.bytes=1048576")
    assert created.exit_code == 0, created.stderr
    assert created.stdout.startswith(f"topic {topic} is created: 2 partitions\nPARTITION  LEADER  REPLICAS\n")
    assert "zkconsumer: 2 of 2 partitions have a leader\n" in created.stderr
    config = json.loads(kafka_0822.client.get(f"/config/topics/{topic}")[0])["config"]
    assert config == {"retention.ms": "1000", "segment.bytes": "1048576"}
    again = change(kafka_0822, "create", topic)
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.startswith(f"zkconsumer: topic '{topic}' exists already; ")
    grown = change(kafka_0822, "grow", topic, "--partitions", "3", "--json")
    assert "zkconsumer: messages with keys go to other partitions from now on" in grown.stderr
    found = json.loads(grown.stdout)
    assert [(each["partition"], len(each["replicas"])) for each in found["partitions"]] == [(2, 2)]
    assert (found["written"], found["done"]) == (True, True)
    deleted = change(kafka_0822, "delete", topic)
    assert (deleted.exit_code, deleted.stdout) == (0, f"topic {topic} is deleted: 3 partitions\n")
    assert kafka_0822.client.exists(f"/brokers/topics/{topic}") is None


def test_a_topic_named_as_a_command_is_listed_and_a_late_command_is_explained(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    for name in ("grow", "list"):
        kafka_0822.create_topic(name)
    try:
        for name in ("grow", "list"):
            listed = change(kafka_0822, "list", name, "--json")
            assert [row["topic"] for row in json.loads(listed.stdout)["partitions"]] == [name]
        late = topics(kafka_0822, "create", fresh_topic())
        assert late.exit_code == 1
        assert late.stderr.endswith("; write the command `create` first: zkconsumer topics create ...\n")
    finally:
        for name in ("grow", "list"):
            kafka_0822.delete_topic(name)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["create", "t", "--partitions", "0"], 1, "the number of partitions is 0; it must be 1 to 200000"),
        (["create", "t", "--partitions", "x"], 2, "'x' is not a valid integer"),
        (["create", "t", "--replica-assignment", "0:a"], 2, "partition 0 has '0:a'"),
        (["create", "t", "--replica-assignment", "0", "--partitions", "1"], 2, "Give --replica-assignment, or"),
        (["create", "t", "--topic-config", "retention.ms"], 2, "'retention.ms' is not name=value"),
        (["create", "t", "--config", "retention.ms=1", "--config", "retention.ms=2"], 2, "retention.ms is given twice"),
        (["create", "t", "--config", "retention.ms=soon"], 1, "retention.ms is 'soon'; it must be an integer"),
        (["create", "a/b"], 1, "topic 'a/b' has characters other than"),
        (["create", ".."], 1, "topic '..'"),
        (["grow", "t"], 2, "Missing option '--partitions'"),
        (["delete", "no-such-topic"], 1, "topic 'no-such-topic' does not exist"),
        (["delete"], 2, "Missing argument 'NAME'"),
    ],
)
def test_wrong_changes_are_one_sentence(kafka_0822: KafkaCluster, arguments: list[str], status: int, said: str) -> None:
    refused = change(kafka_0822, *arguments)
    assert (refused.exit_code, refused.stdout) == (status, "")
    assert said in refused.stderr
