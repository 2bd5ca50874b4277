"""`Admin.lag` and `zkconsumer lag`: every group of a cluster, both stores, without joining, one request a leader."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import TopicPartition
from tests.cli.command_line import TIMEOUT_S, Running, command
from zkconsumer.admin import Admin, LagChoice, NotFound
from zkconsumer.cli.program import program
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers of its own, as all groups of the cluster count."""
    with EmbeddedCluster(2) as running:
        running.create_topic("clicks", 4)
        running.create_topic("views", 1)
        load(running, "clicks", 100)
        load(running, "views", 10)
        yield running


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[KazooClient]:
    """A client for writing the nodes of members; nothing of it is left after the test."""
    found = KazooClient(cluster.zookeeper_connect)
    found.start()
    yield found
    for group in found.get_children("/consumers"):
        found.delete(f"/consumers/{group}", recursive=True)
    found.stop()
    found.close()


def stored(client: KazooClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    for partition, offset in offsets.items():
        client.create(f"/consumers/{group}/offsets/{topic}/{partition}", b"%d" % offset, makepath=True)


def member(client: KazooClient, group: str, name: str, topic: str, owned: list[int]) -> None:
    """A Java member, as its nodes are."""
    text = f'{{"version":1,"subscription":{{"{topic}":1}},"pattern":"static","timestamp":"1"}}'
    client.create(f"/consumers/{group}/ids/{name}", text.encode(), ephemeral=True, makepath=True)
    for partition in owned:
        client.create(
            f"/consumers/{group}/owners/{topic}/{partition}", f"{name}-0".encode(), ephemeral=True, makepath=True
        )


def lag(cluster: EmbeddedCluster, *arguments: str) -> Result:
    call = ["lag", "--zookeeper", cluster.zookeeper_connect, *arguments]
    return CliRunner().invoke(program, call, prog_name="zkconsumer")


def test_all_groups_are_read_with_members_and_gaps(cluster: EmbeddedCluster, client: KazooClient) -> None:
    stored(client, "billing", "clicks", {0: 100, 1: 40, 2: 0})
    member(client, "billing", "billing_a", "clicks", [0, 1])
    stored(client, "done", "views", {0: 10})
    client.create("/consumers/empty", b"")
    with Admin(cluster.zookeeper_connect) as admin:
        report = admin.lag()
        assert [group.group for group in report.groups] == ["billing", "done", "empty"]
        billing, done, empty = report.groups
        assert (billing.member_count, billing.owned, billing.unowned) == (1, 2, 2)
        assert [(row.partition, row.offset, row.log_end, row.lag) for row in billing.partitions] == [
            (0, 100, 100, 0), (1, 40, 100, 60), (2, 0, 100, 100), (3, None, 100, None),
        ]  # fmt: skip
        assert (billing.lag, billing.lag_unknown) == (160, 1)
        assert (done.lag, done.lag_unknown, done.unowned) == (0, 0, 0)
        assert empty.partitions == ()
        assert [group.group for group in admin.lag("done").groups] == ["done"]
        with pytest.raises(NotFound, match="did you mean 'billing'"):
            admin.lag("biling")
        chosen = LagChoice(keeps_group=lambda name: name != "done", keeps_topic=lambda name: name == "views")
        assert [(group.group, group.lag) for group in admin.lag_monitor(chosen).read().groups] == [
            ("billing", 0), ("empty", 0),
        ]  # fmt: skip


def test_offsets_in_kafka_count_also_of_groups_without_members(cluster: EmbeddedCluster, client: KazooClient) -> None:
    group = f"inkafka-{uuid.uuid4().hex[:6]}"
    client.create(f"/consumers/{group}", b"")
    broker = cluster.brokers[0]
    with SimpleConsumer("127.0.0.1", broker.port, 10.0, "test") as consumer:

        def manager() -> object:
            try:
                return consumer.consumer_metadata(group)
            except Exception:  # noqa: BLE001 - the topic of offsets is just being created
                return None

        found = wait_until(manager, TIMEOUT_S, "an offset manager")
    with SimpleConsumer(found.host, found.port, 10.0, "test") as consumer:  # type: ignore[attr-defined]
        consumer.commit_offsets(group, {TopicPartition("clicks", 3): 30}, version=1)
    with Admin(cluster.zookeeper_connect) as admin:
        monitor = admin.lag_monitor(LagChoice((group,)))
        for _ in range(2):  # the second round asks for the topic alone that the first one has found
            [only] = monitor.read().groups
            rows = {row.partition: (row.offset_in_kafka, row.lag) for row in only.partitions}
            assert rows[3] == (30, 70)
            assert only.lag == 70


def test_each_leader_gets_one_request_for_all_groups(
    cluster: EmbeddedCluster, client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        stored(client, f"group{number}", "clicks", {0: number, 1: number, 2: number, 3: number})
        stored(client, f"group{number}", "views", {0: 1})
    asked: list[int] = []
    original = SimpleConsumer.multi_offsets_before

    def counted(self: SimpleConsumer, partitions: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(self.port)
        return original(self, partitions, *arguments, **options)

    monkeypatch.setattr(SimpleConsumer, "multi_offsets_before", counted)
    with Admin(cluster.zookeeper_connect) as admin:
        report = admin.lag()
    assert sorted(asked) == sorted(broker.port for broker in cluster.brokers.values())
    assert len(report.groups) == 30
    assert sum(group.lag for group in report.groups) == sum(4 * (100 - number) + 9 for number in range(30))


def test_rates_and_the_time_to_catch_up(cluster: EmbeddedCluster, client: KazooClient) -> None:
    cluster.create_topic("moving")
    load(cluster, "moving", 1000)
    stored(client, "reader", "moving", {0: 100})
    with Admin(cluster.zookeeper_connect) as admin:
        monitor = admin.lag_monitor(LagChoice(("reader",)))
        [first] = monitor.read().groups[0].topics_lag
        assert (first.consumed_per_s, first.produced_per_s, first.catch_up_s) == (None, None, None)
        client.set("/consumers/reader/offsets/moving/0", b"500")
        load(cluster, "moving", 100)
        [second] = monitor.read().groups[0].topics_lag
        assert second.lag == 600
        assert second.consumed_per_s is not None
        assert second.produced_per_s is not None
        assert second.consumed_per_s == pytest.approx(4 * second.produced_per_s)
        assert second.catch_up_s == pytest.approx(600 / (second.consumed_per_s - second.produced_per_s))
        client.set("/consumers/reader/offsets/moving/0", b"0")
        [back] = monitor.read().groups[0].topics_lag
        assert back.consumed_per_s is None  # an operator has set the offset back: no rate can be known


def test_the_command_prints_tables_and_json(cluster: EmbeddedCluster, client: KazooClient) -> None:
    stored(client, "billing", "clicks", {0: 100, 1: 40})
    stored(client, "slow", "views", {0: 1})
    shown = lag(cluster, "--all")
    assert shown.exit_code == 0
    first, _, headers, *rows = shown.stdout.splitlines()
    assert first.endswith(": 2 groups, 5 partitions, total lag 69, unknown for 2 partitions")
    assert headers.split() == ["GROUP", "TOPIC", "PARTITIONS", "UNOWNED", "LAG", "UNKNOWN"]
    assert [row.split() for row in rows] == [
        ["billing", "clicks", "4", "0", "60", "2"], ["slow", "views", "1", "0", "9", "0"],
    ]  # fmt: skip
    limited = lag(cluster, "--all", "--by", "partition", "--limit", "1", "--group-filter", "b.*")
    assert "billing  clicks  none" in limited.stdout
    assert "... and 3 more with less lag" in limited.stdout
    assert "slow" not in limited.stdout
    [line] = lag(cluster, "slow", "--json").stdout.splitlines()
    assert json.loads(line)["groups"][0]["topics_lag"][0]["lag"] == 9


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Give the names of groups, or --all."),
        (["a", "--all"], 2, "Give the names of groups, or --all."),
        (["a", "--group-filter", "x"], 2, "--group-filter needs --all"),
        (["--all", "--topic-filter", "("], 2, "'(' is not a regular expression"),
        (["--all", "--interval-s", "0"], 2, "0.0 is not in the range"),
        (["a/b"], 1, "group 'a/b' has characters other than"),
        (["no-such-group"], 1, "group 'no-such-group' does not exist"),
    ],
)
def test_wrong_calls(cluster: EmbeddedCluster, arguments: list[str], status: int, said: str) -> None:
    refused = lag(cluster, *arguments)
    assert (refused.exit_code, refused.stdout) == (status, "")
    assert said in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_in_order(cluster: EmbeddedCluster, client: KazooClient, number: int) -> None:
    stored(client, "billing", "clicks", {0: 100})
    call = ("lag", "--all", "--watch", "--interval-s", "1", "--json", "--zookeeper", cluster.zookeeper_connect)
    with Running(*call) as running:
        lines = running.wait_lines(2)
        assert [json.loads(line)["groups"][0]["group"] for line in lines[:2]] == ["billing", "billing"]
        assert running.end(number) == 0
        assert running.errors() == ""


def test_watching_ends_quietly_when_nobody_reads(cluster: EmbeddedCluster, client: KazooClient) -> None:
    stored(client, "billing", "clicks", {0: 100})
    call = ["lag", "--all", "--watch", "--interval-s", "1", "--zookeeper", cluster.zookeeper_connect]
    running = subprocess.Popen(command(call), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.stderr is not None
    errors = running.stderr.read()
    assert (running.wait(TIMEOUT_S), errors) == (0, b"")
    running.stderr.close()


def test_watching_survives_an_outage_of_zookeeper(fresh_topic: Callable[[], str]) -> None:
    with EmbeddedCluster(1) as own:
        own.create_topic("clicks")
        load(own, "clicks", 5)
        with KazooClientOf(own) as client:
            stored(client, "billing", "clicks", {0: 1})
        call = ("lag", "--all", "--watch", "--interval-s", "1", "--json", "--zookeeper", own.zookeeper_connect)
        with Running(*call) as running:
            running.wait_lines(1)
            own.zookeeper.stop()
            wait_until(lambda: "trying again" in running.errors(), 3 * TIMEOUT_S, "a sentence", state=running.errors)
            own.zookeeper.start()
            seen = len(running.lines())
            wait_until(lambda: len(running.lines()) > seen, 3 * TIMEOUT_S, "figures again", state=running.errors)
            assert json.loads(running.lines()[-1])["groups"][0]["lag"] == 4
            assert running.end() == 0


class KazooClientOf:
    """A client for a block."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._client = KazooClient(cluster.zookeeper_connect)

    def __enter__(self) -> KazooClient:
        self._client.start()
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()
