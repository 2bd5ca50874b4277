"""The commands that change topics, and the exporter, with each node that they read or write closed to them.

The cluster itself authenticates as the owner, so that its controller acts on what the commands write.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from closed_to_others import MODES, OWNER_LOGIN, REMEDY, problem_of
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE
from secured import PATIENCE_S

from simpleconsumer.consumer import SimpleConsumer
from zkconsumer.cli.program import program
from zkconsumer.lag_exporter import LagCollector, LagExporter
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

EVERY_MODE = [pytest.param("closed", id="closed"),
              *(pytest.param(mode, id=mode, marks=pytest.mark.slow) for mode in MODES if mode != "closed")]  # fmt: skip
OF_CLUSTER = ("/brokers", "/brokers/ids", "/brokers/ids/0", "/brokers/topics", "/config/topics", "/controller",
              "/admin/delete_topics", "/admin/reassign_partitions", "/consumers", "/consumers/group",
              "/consumers/group/owners", "/consumers/group/owners/{}")  # fmt: skip
OF_TOPIC = ("/brokers/topics/{}", "/brokers/topics/{}/partitions/0/state", "/config/topics/{}")
NAMES = itertools.count()
READ = {
    "create": {"/brokers/ids", "/brokers/ids/0", "/brokers/topics"},
    "grow": {"/brokers/ids", "/brokers/ids/0", "/brokers/topics/{}"},
    "delete": {"/brokers/ids", "/brokers/ids/0", "/brokers/topics/{}", "/consumers", "/consumers/group/owners/{}"},
}
WRITTEN = {"create": {"/brokers/topics", "/config/topics"}, "grow": {"/brokers/topics/{}"},
           "delete": {"/admin/delete_topics"}}  # fmt: skip
"""The nodes that each command needs, and so has to name: the walk would find nothing with a cluster that is open."""


@dataclass
class Closing:
    """A cluster whose nodes can be closed to others.

    Attributes:
        cluster: Authenticates as the owner.
        owner: A client of the owner, inside the chroot.
    """

    cluster: EmbeddedCluster
    owner: KazooClient

    def new_topic(self) -> str:
        """Create a topic of one partition, which a group owns."""
        name = f"topic{next(NAMES)}"
        self.cluster.create_topic(name)
        self.owner.create(f"/consumers/group/owners/{name}/0", b"group_member-0", makepath=True)
        return name

    def while_closed(self, path: str, mode: str, call: Callable[[], tuple[int, str, str]]) -> tuple[int, str, str]:
        """Return what a call comes to while a node is closed."""
        self.owner.set_acls(path, MODES[mode])
        try:
            return call()
        finally:
            with suppress(NoNodeError):
                self.owner.retry(self.owner.set_acls, path, OPEN_ACL_UNSAFE)


@pytest.fixture(scope="module", params=["zk-3.9", pytest.param("zk-3.4.14", marks=pytest.mark.slow)])
def closing(request: pytest.FixtureRequest) -> Iterator[Closing]:
    login = ZooKeeperLogin(*OWNER_LOGIN, scheme="digest")
    with (
        ZooKeeperServer(version=request.param) as server,
        EmbeddedCluster(zookeeper=server, chroot="/kafka", login=login) as cluster,
    ):
        owner = KazooClient(f"{server.connect}/kafka", auth_data=[("digest", ":".join(OWNER_LOGIN))])
        owner.start(timeout=PATIENCE_S)
        owner.ensure_path("/admin/reassign_partitions")
        yield Closing(cluster, owner)
        owner.stop()
        owner.close()


# -- commands that change topics ---------------------------------------------------------------------------------------


def run(connect: str, *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its status, all that it printed with names of topics as `NAME`, and standard error."""
    result = CliRunner().invoke(
        program, ["topics", *arguments, "--zookeeper", connect, "--wait-s", "3"], prog_name="zkconsumer"
    )
    return result.exit_code, re.sub(r"\btopic\d+\b", "NAME", result.output), result.stderr


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize(
    ("command", "options", "is_new"),
    [
        ("create", ("--partitions", "1"), True),
        ("create", ("--partitions", "1", "--topic-config", "retention.ms=1000"), True),
        ("grow", ("--partitions", "2"), False),
        ("delete", (), False),
    ],
    ids=["create", "create with settings", "grow", "delete"],
)
def test_a_change_of_a_topic_names_the_closed_node(
    closing: Closing, command: str, options: Sequence[str], is_new: bool, mode: str
) -> None:
    connect = closing.cluster.zookeeper_connect

    def topic() -> str:
        return f"topic{next(NAMES)}" if is_new else closing.new_topic()

    status, printed, said = run(connect, command, topic(), *options)
    assert status == 0, said
    wrong, refused = [], set()
    for pattern in (*OF_CLUSTER, *(() if is_new else OF_TOPIC)):
        name = topic()
        path = pattern.format(name)
        if not closing.owner.exists(path):
            continue
        found = closing.while_closed(path, mode, lambda name=name: run(connect, command, name, *options))
        if problem := problem_of(path, found, (status, printed)):
            wrong.append(f"{path} {mode}: {problem}\n  {found}")
        if "NoAuth" in found[1] + found[2]:
            refused.add(pattern)
    assert not wrong, f"open: {(status, printed, said)}\n" + "\n".join(wrong)
    needed = (READ[command] if mode != "read only" else set()) | (WRITTEN[command] if mode != "write only" else set())
    assert needed <= refused


# -- the exporter ------------------------------------------------------------------------------------------------------

OF_GROUP = ("/consumers", "/consumers/lagging", "/consumers/lagging/ids", "/consumers/lagging/ids/lagging_member",
            "/consumers/lagging/offsets", "/consumers/lagging/offsets/read", "/consumers/lagging/offsets/read/0",
            "/consumers/lagging/owners", "/consumers/lagging/owners/read",
            "/consumers/lagging/owners/read/0")  # fmt: skip


@pytest.fixture(scope="module")
def with_lag(closing: Closing) -> Closing:
    """A group with one member that owns the partition of a topic and lags behind."""
    closing.cluster.create_topic("read")
    with SimpleConsumer("127.0.0.1", closing.cluster.port(0)) as broker:
        broker.produce("read", 0, [b"x"] * 3)
    group = "/consumers/lagging"
    member = b'{"version":1,"subscription":{"read":1},"pattern":"static","timestamp":"1"}'
    for path, data in ((f"{group}/ids/lagging_member", member), (f"{group}/offsets/read/0", b"1"),
                       (f"{group}/owners/read/0", b"lagging_member-0")):  # fmt: skip
        closing.owner.create(path, data, makepath=True)
    return closing


def exported(connect: str, caplog: pytest.LogCaptureFixture) -> tuple[int, str, str]:
    """Return whether a round succeeded (0), the figures of the group, and the sentences of log and report."""
    caplog.clear()
    with caplog.at_level(logging.WARNING), LagExporter(connect) as exporter:
        wait_until(lambda: exporter.state().reads > 0, PATIENCE_S, "a round", state=lambda: caplog.text)
        state = exporter.state()
        samples = [sample for metric in LagCollector(exporter).collect() for sample in metric.samples]
    figures = sorted(f"{each.name} {sorted(each.labels.items())} {each.value}" for each in samples
                     if each.labels.get("group") == "lagging")  # fmt: skip
    reports = () if state.report is None else state.report.groups
    problems = [str(problem) for group in reports for problem in group.problems]
    return int(not state.is_up), "\n".join(figures), caplog.text + "\n".join(problems)


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_the_exporter_names_the_closed_node(with_lag: Closing, caplog: pytest.LogCaptureFixture, mode: str) -> None:
    connect = with_lag.cluster.zookeeper_connect
    status, figures, said = exported(connect, caplog)
    assert status == 0, said
    assert "zkconsumer_group_lag_messages" in figures
    wrong = []
    for path in ("/brokers/ids", "/brokers/ids/0", "/brokers/topics", "/brokers/topics/read",
                 "/brokers/topics/read/partitions/0/state", *OF_GROUP):  # fmt: skip
        found = with_lag.while_closed(path, mode, lambda: exported(connect, caplog))
        if problem := problem_of(path, found, (status, figures)):
            wrong.append(f"{path} {mode}: {problem}\n  {found}")
    assert not wrong, f"open: {(status, figures, said)}\n" + "\n".join(wrong)


def test_the_exporter_goes_on_when_a_node_is_open_again(
    with_lag: Closing, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    connect = with_lag.cluster.zookeeper_connect
    assert exported(connect, caplog)[0] == 0
    status, figures, said = with_lag.while_closed("/consumers", "closed", lambda: exported(connect, caplog))
    assert (status, figures) == (1, "")
    assert re.search(rf"the lag of the groups cannot be read: .*/consumers \(NoAuth\).*{REMEDY}", said), said
