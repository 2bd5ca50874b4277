"""The exporter of all groups' lag: its figures, their age, outages of servers, limits, and the command."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from scrapes import scraped, scraped_text, value, values, wait_up

from tests.admin.both_stores import store_in_kafka
from tests.cli.command_line import TIMEOUT_S, Running, run
from zkconsumer.admin import LagChoice
from zkconsumer.errors import ConfigError
from zkconsumer.lag_exporter import ExporterSettings, LagCollector, LagExporter
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.processes import free_port
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.client import ClosedNodes

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "OPERATIONS.md"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers with a group that has a member, as a Java one would be registered, and one without."""
    with EmbeddedCluster(2) as running:
        running.create_topic("clicks", 3)
        load(running, "clicks", 100)
        client = KazooClient(running.zookeeper_connect)
        client.start()
        text = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'
        client.create("/consumers/billing/ids/billing_a", text, ephemeral=True, makepath=True)
        client.create("/consumers/billing/owners/clicks/0", b"billing_a-0", ephemeral=True, makepath=True)
        for group, partition, offset in (("billing", 0, b"40"), ("billing", 1, b"100"), ("old", 0, b"1")):
            client.create(f"/consumers/{group}/offsets/clicks/{partition}", offset, makepath=True)
        yield running
        client.stop()
        client.close()


def exporter(cluster: EmbeddedCluster, *, choice: LagChoice | None = None, **settings: object) -> LagExporter:
    chosen = ExporterSettings(**{"interval_s": 1.0, **settings})  # type: ignore[arg-type]
    return LagExporter(cluster.zookeeper_connect, choice=choice, settings=chosen)


def test_the_figures_of_all_groups(cluster: EmbeddedCluster) -> None:
    with exporter(cluster, with_owners=True) as running, running.serve(0) as server:
        found = wait_up(server.port)
    place = {"group": "billing", "topic": "clicks", "partition": "0"}
    assert value(found, "group_lag_messages", **place) == 60
    assert value(found, "group_lag_messages", **{**place, "partition": "2"}) is None  # it has no offset
    assert value(found, "group_committed_offset", **place, store="zookeeper") == 40
    assert value(found, "group_committed_offset", **place, store="kafka") is None
    assert value(found, "topic_log_end_offset", topic="clicks", partition="0") == 100
    assert value(found, "group_partition_owned", **place) == 1
    assert value(found, "group_partition_owner", **place, owner="billing_a-0") == 1
    assert value(found, "group_topic_lag_messages", group="billing", topic="clicks") == 60
    assert value(found, "group_topic_lag_messages", group="old", topic="clicks") == 99
    figures = {"registered_members": 1, "owned_partitions": 1, "unowned_partitions": 2, "unknown_lag_partitions": 1}
    for name, expected in figures.items():
        assert value(found, f"group_{name}", group="billing") == expected, name
    assert value(found, "group_unowned_partitions", group="old") == 0
    age = value(found, "exporter_figures_age_seconds")
    assert age is not None
    assert 0 <= age < 30
    assert value(found, "exporter_reads_total") == 1
    assert value(found, "exporter_groups") == 2


def test_filters_and_limits(cluster: EmbeddedCluster) -> None:
    choice = LagChoice(keeps_group=lambda name: name == "billing")
    with exporter(cluster, choice=choice, max_partitions=2) as running, running.serve(0) as server:
        found = wait_up(server.port)
    assert {dict(labels)["group"] for name, labels in found if name == "group_registered_members"} == {"billing"}
    owned = [labels for name, labels in found if name == "group_partition_owned"]
    assert len(owned) == 2
    assert value(found, "exporter_dropped_partitions") == 1
    assert value(found, "group_topic_lag_messages", group="billing", topic="clicks") == 60


def test_old_figures_are_left_out_and_an_outage_of_zookeeper_is_survived() -> None:
    with EmbeddedCluster(1) as own:
        own.create_topic("clicks")
        client = KazooClient(own.zookeeper_connect)
        client.start()
        client.create("/consumers/g/offsets/clicks/0", b"0", makepath=True)
        client.stop()
        client.close()
        with exporter(own, stale_after_s=4.0) as running, running.serve(0) as server:
            assert value(wait_up(server.port), "group_topic_lag_messages", group="g", topic="clicks") == 0
            own.zookeeper.stop()
            found = wait_up(server.port, 0.0)
            age = value(found, "exporter_figures_age_seconds")
            assert age is not None
            assert age > 4.0
            assert value(found, "group_topic_lag_messages", group="g", topic="clicks") is None
            assert value(found, "exporter_groups") == 0
            assert sum(each for (name, _), each in found.items() if name == "exporter_read_errors_total") >= 1
            own.zookeeper.start()
            # The first round may end when its figures are too old already: it began before ZooKeeper was back.
            wait_until(lambda: value(scraped(server.port), "group_topic_lag_messages", group="g", topic="clicks") == 0,
                       2 * TIMEOUT_S, "the figures to be back")  # fmt: skip


def test_a_dead_broker_leaves_lag_unknown_and_never_zero() -> None:
    with EmbeddedCluster(2) as own:
        own.create_topic("clicks", assignment={0: [0], 1: [1]})
        own.create_topic("views", assignment={0: [1]})
        for topic in ("clicks", "views"):
            load(own, topic, 10)
        client = KazooClient(own.zookeeper_connect)
        client.start()
        for place in ("clicks/0", "clicks/1", "views/0"):
            client.create(f"/consumers/g/offsets/{place}", b"4", makepath=True)
        client.stop()
        client.close()
        with exporter(own) as running, running.serve(0) as server:
            whole = wait_up(server.port)
            assert value(whole, "group_topic_lag_messages", group="g", topic="clicks") == 12
            assert value(whole, "group_topic_lag_messages", group="g", topic="views") == 6
            assert value(whole, "group_topic_unknown_lag_partitions", group="g", topic="views") == 0
            own.kill(1)

            def is_unknown() -> bool:
                found = scraped(server.port)
                assert value(found, "exporter_up") == 1
                return value(found, "group_unknown_lag_partitions", group="g") == 2

            wait_until(is_unknown, 2 * TIMEOUT_S, "the lag to be unknown")
            found = scraped(server.port)
            assert value(found, "group_lag_messages", group="g", topic="clicks", partition="1") is None
            assert value(found, "group_lag_messages", group="g", topic="clicks", partition="0") == 6
            assert value(found, "group_topic_lag_messages", group="g", topic="clicks") == 6
            assert value(found, "group_topic_unknown_lag_partitions", group="g", topic="clicks") == 1
            assert value(found, "group_topic_lag_messages", group="g", topic="views") is None, "no sum of nothing"
            assert value(found, "group_topic_unknown_lag_partitions", group="g", topic="views") == 1
            assert value(found, "group_committed_offset", group="g", topic="views", partition="0",
                         store="zookeeper") == 4  # fmt: skip
            own.start(1)
            wait_until(lambda: value(scraped(server.port), "group_unknown_lag_partitions", group="g") == 0,
                       2 * TIMEOUT_S, "the lag to be known again")  # fmt: skip
            back = scraped(server.port)
            assert values(back, "group_lag_messages") == values(whole, "group_lag_messages")
            assert values(back, "group_topic_lag_messages") == values(whole, "group_topic_lag_messages")


def test_owners_and_members_that_cannot_be_read_have_no_figures(cluster: EmbeddedCluster) -> None:
    with ClosedNodes(cluster.zookeeper_connect) as closed:
        closed.close("/consumers/billing/owners/clicks")
        closed.close("/consumers/billing/ids")
        with exporter(cluster, with_owners=True) as running, running.serve(0) as server:
            found = wait_up(server.port)
    for name in ("registered_members", "owned_partitions", "unowned_partitions"):
        assert value(found, f"group_{name}", group="billing") is None, name
        assert value(found, f"group_{name}", group="old") == 0, name
    assert values(found, "group_partition_owned", group="billing") == {}
    assert len(values(found, "group_partition_owned", group="old")) == 3
    assert value(found, "group_problems", group="billing") == 2
    assert value(found, "group_topic_lag_messages", group="billing", topic="clicks") == 60


# -- scrapes -----------------------------------------------------------------------------------------------------------


def test_each_metric_has_its_help_and_type_and_labels_are_escaped(cluster: EmbeddedCluster) -> None:
    """Other clients check no names: ZooKeeper takes quotes and backslashes, and owner nodes any text."""
    odd, owner = 'o"d\\d group', 'a"\\b\nc'
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        client.create(f"/consumers/{odd}/offsets/clicks/0", b"1", makepath=True)
        client.create(f"/consumers/{odd}/owners/clicks/0", owner.encode(), makepath=True)
        with exporter(cluster, with_owners=True) as running, running.serve(0) as server:
            found = wait_up(server.port)
            text = scraped_text(server.port)
        place = {"group": odd, "topic": "clicks", "partition": "0"}
        assert value(found, "group_lag_messages", **place) == 99
        assert value(found, "group_partition_owner", **place, owner=owner) == 1
        names = [line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")]
        families = re.findall(r"^# TYPE (\S+) (gauge|counter)$", text, re.MULTILINE)
        kinds = dict(families)
        assert len(kinds) == len(families) == len(re.findall(r"^# HELP \S+ \S.*\.$", text, re.MULTILINE))
        assert set(names) <= kinds.keys()
        assert {name for name, kind in families if kind == "counter"} == {
            "zkconsumer_exporter_reads_total", "zkconsumer_exporter_read_errors_total",
        }  # fmt: skip
        assert len(text.splitlines()) == len(set(text.splitlines())), "no series twice"
    finally:
        client.delete(f"/consumers/{odd}", recursive=True)
        client.stop()
        client.close()


def test_the_series_of_a_deleted_group_end_with_the_next_round(cluster: EmbeddedCluster) -> None:
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        client.create("/consumers/brief/offsets/clicks/0", b"1", makepath=True)
        with exporter(cluster) as running, running.serve(0) as server:
            assert values(wait_up(server.port), "group_lag_messages", group="brief")
            client.delete("/consumers/brief", recursive=True)

            def group_labels() -> set[str]:
                return {dict(labels)["group"] for _, labels in scraped(server.port) if "group" in dict(labels)}

            wait_until(lambda: group_labels() == {"billing", "old"}, TIMEOUT_S, "the series to end")
    finally:
        client.stop()
        client.close()


def test_a_scrape_does_not_wait_for_a_round_and_rounds_end_in_time() -> None:
    with EmbeddedCluster(2) as own:
        own.create_topic("clicks", assignment={0: [0], 1: [1]})
        load(own, "clicks", 10)
        client = KazooClient(own.zookeeper_connect)
        client.start()
        for partition in (0, 1):
            client.create(f"/consumers/g/offsets/clicks/{partition}", b"4", makepath=True)
        client.stop()
        client.close()
        with exporter(own) as running, running.serve(0) as server:
            wait_up(server.port)
            own.pause(1)
            slowest_s = 0.0
            ages: list[float] = []
            reads = value(scraped(server.port), "exporter_reads_total") or 0
            deadline = time.monotonic() + 4 * TIMEOUT_S
            while (found := scraped(server.port)) and value(found, "group_unknown_lag_partitions", group="g") != 1:
                assert time.monotonic() < deadline, found
                started_at = time.monotonic()
                found = scraped(server.port)
                slowest_s = max(slowest_s, time.monotonic() - started_at)
                ages.append(value(found, "exporter_figures_age_seconds") or 0.0)
                assert value(found, "group_lag_messages", group="g", topic="clicks", partition="0") == 6
                time.sleep(0.1)
            assert max(ages) > 3.0, "the rounds were not slow"
            assert slowest_s < 2.0
            found = scraped(server.port)
            assert (value(found, "exporter_reads_total") or 0) > reads
            assert value(found, "exporter_up") == 1
            assert value(found, "group_lag_messages", group="g", topic="clicks", partition="1") is None
            own.resume(1)


def test_connections_that_ask_nothing_or_read_nothing_are_closed(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zkconsumer.prometheus._CLIENT_TIMEOUT_S", 0.5)
    with exporter(cluster) as running, running.serve(0) as server:
        wait_up(server.port)
        with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as silent:
            assert silent.recv(1) == b"", "the server closes it"
        with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as rude:
            rude.sendall(b"GET /metrics HTTP/1.0\r\n")
        assert value(scraped(server.port), "exporter_up") == 1
    assert "Traceback" not in capfd.readouterr().err


def test_it_starts_without_zookeeper_and_says_so() -> None:
    nowhere = LagExporter(f"127.0.0.1:{free_port()}", settings=ExporterSettings(interval_s=1.0),
                          properties={"zookeeper.connection.timeout.ms": "500"})  # fmt: skip
    with nowhere, nowhere.serve(0) as server:
        wait_until(
            lambda: (value(scraped(server.port), "exporter_read_errors_total", kind="ZooKeeperUnavailable") or 0) >= 1,
            TIMEOUT_S, "an error to be counted",
        )  # fmt: skip
        found = scraped(server.port)
        assert value(found, "exporter_up") == 0
        assert value(found, "exporter_figures_age_seconds") is None


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"interval_s is 0\.5; it must be at least 1"):
        ExporterSettings(interval_s=0.5)
    with pytest.raises(ConfigError, match="max_partitions is -1"):
        ExporterSettings(max_partitions=-1)
    with pytest.raises(ConfigError, match=r"zookeeper\.acl"):
        LagExporter("localhost:1", properties={"zookeeper.acl": "nobody"})


def test_each_metric_is_documented() -> None:
    metrics = list(LagCollector(LagExporter("localhost:1")).describe())
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in metrics}
    assert len(names) > 15
    documented = set(re.findall(r"^\| `(zkconsumer_\w+)", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE))
    named = {name.removesuffix("_total") if name not in documented else name for name in names}
    assert named <= documented


def test_the_command_serves_until_it_is_ended(cluster: EmbeddedCluster) -> None:
    call = ("exporter", "--zookeeper", cluster.zookeeper_connect, "--port", "0", "--group-filter", "b.*")
    with Running(*call) as running:
        [line] = running.wait_lines(1)
        port = int(re.fullmatch(r"the lag of all groups is served at http://127\.0\.0\.1:(\d+)/metrics", line)[1])  # type: ignore[index]
        assert value(wait_up(port), "group_topic_lag_messages", group="billing", topic="clicks") == 60
        taken = run("exporter", "--zookeeper", cluster.zookeeper_connect, "--port", str(port))
        assert taken.returncode == 1
        assert taken.stderr.startswith(b"zkconsumer: metrics cannot be served at 127.0.0.1")
        assert taken.stderr.count(b"\n") == 1
        assert running.end() == 0
        assert running.errors() == ""


@pytest.mark.parametrize("store", ["zookeeper", "kafka"])
def test_the_command_ends_at_once_while_a_round_waits_for_a_broker(store: str) -> None:
    with EmbeddedCluster(1) as own:
        own.create_topic("clicks")
        client = KazooClient(own.zookeeper_connect)
        client.start()
        for group in ("one", "two"):
            client.create(f"/consumers/{group}/offsets/clicks/0", b"0", makepath=True)
            if store == "kafka":
                store_in_kafka(own, group, "clicks", {0: 0})
        client.stop()
        client.close()
        call = ("exporter", "--zookeeper", own.zookeeper_connect, "--port", "0", "--interval-s", "1")
        with Running(*call) as running:
            [line] = running.wait_lines(1)
            port = int(re.search(r":(\d+)/metrics$", line)[1])  # type: ignore[index]
            wait_up(port)
            own.pause(0)
            wait_until(lambda: (value(scraped(port), "exporter_figures_age_seconds") or 0) > 2.0, TIMEOUT_S,
                       "a slow round")  # fmt: skip
            started_at = time.monotonic()
            assert running.end() == 0
            assert time.monotonic() - started_at < 4.0  # a second and a half on a machine with nothing else to do
            assert running.errors() == ""


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("no-such-host.invalid", "metrics cannot be served at no-such-host.invalid:0: "),
        ("a" * 80, "is not a host name"),
        ("203.0.113.7", "metrics cannot be served at 203.0.113.7:0: "),
    ],
)
def test_a_host_that_cannot_be_listened_on_is_named(cluster: EmbeddedCluster, host: str, said: str) -> None:
    refused = run("exporter", "--zookeeper", cluster.zookeeper_connect, "--port", "0", "--host", host)
    assert refused.returncode == 1
    assert said in refused.stderr.decode()
    assert "choose another --port, or another --host" in refused.stderr.decode()
    assert refused.stderr.count(b"\n") == 1


def test_without_the_package_the_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None;"
        "sys.argv[1:] = ['exporter', '--zookeeper', 'localhost:1'];"
        "from zkconsumer.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "zkconsumer: the exporter needs the package prometheus_client, which is not installed; "
        "pip install 'zkconsumer[prometheus]'\n"
    )
