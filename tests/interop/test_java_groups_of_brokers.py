"""Members of Kafka's own Java consumer in groups that brokers coordinate, as administration shows them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from zkconsumer.admin import BrokerAdmin, BrokerGroupReport, GroupHasMembers, NotFound
from zkconsumer.testing import load
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.java import maven
from zkconsumer.testing.java.runtime import find_java
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
PATIENCE_S = 60.0
COOPERATIVE = {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}
NEWEST = {"group.protocol": "consumer", "group.remote.assignor": "range"}
WAYS = [
    ("0.9.0.1", {}, "classic", "range"), ("1.1.1", {}, "classic", "range"),
    ("2.8.2", COOPERATIVE, "classic", "cooperative-sticky"), ("3.9.2", {}, "classic", "range"),
    ("4.3.1", COOPERATIVE, "classic", "cooperative-sticky"), ("4.3.1", NEWEST, "consumer", "range"),
]  # fmt: skip


class JavaMembers:
    """Starts console consumers of a version, which read a topic in one group until the end of the block."""

    def __init__(self, cluster: KafkaCluster, folder: Path, group: str, topic: str) -> None:
        self._cluster, self._folder, self._group, self._topic = cluster, folder, group, topic
        self._stack = ExitStack()

    def start(self, client_id: str, settings: dict[str, str]) -> None:
        since = version_tuple(self._cluster.version)
        file = self._folder / f"{client_id}.properties"
        given = {"group.id": self._group, "client.id": client_id, "auto.offset.reset": "earliest",
                 "auto.commit.interval.ms": "200", **settings}  # fmt: skip
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        main = "kafka.tools.ConsoleConsumer"
        if since >= (3, 9):
            main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        arguments = ["--bootstrap-server", f"127.0.0.1:{self._cluster.port(0)}", "--topic", self._topic,
                     "--consumer.config", str(file)]  # fmt: skip
        if since < (0, 10, 1):
            arguments.append("--new-consumer")
        jars = maven.jars("3.9.2" if since >= (4, 0) else self._cluster.version)  # those of 4.x have no tools
        command = find_java().command(jars, main, arguments, heap_mb=64)
        process = ChildProcess(f"member {client_id}", command, self._folder / f"{client_id}.log")
        self._stack.callback(process.stop)

    def __enter__(self) -> JavaMembers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]} {way[2]} {way[3]}")
def way(request: pytest.FixtureRequest) -> tuple[str, dict[str, str], str, str]:
    found: tuple[str, dict[str, str], str, str] = request.param
    return found


@pytest.fixture
def cluster(way: tuple[str, dict[str, str], str, str]) -> Iterator[KafkaCluster]:
    with KafkaCluster(way[0]) as made:
        yield made


def test_java_members_are_shown_with_what_each_has(
    cluster: KafkaCluster, way: tuple[str, dict[str, str], str, str], tmp_path: Path
) -> None:
    _, settings, group_type, assignor = way
    topic, group = f"clicks-{uuid.uuid4().hex[:8]}", f"billing-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions=4)
    load(cluster, topic, 5)
    admin = BrokerAdmin(f"127.0.0.1:{cluster.port(0)}")
    admin.set_offsets("first", topic, "latest")  # from now on there are coordinators

    def described(is_it: Callable[[BrokerGroupReport], object]) -> BrokerGroupReport:
        seen: list[BrokerGroupReport] = []

        def look() -> bool:
            try:
                seen[:] = [admin.describe(group)]
            except NotFound:
                return False
            return bool(is_it(seen[0]))

        wait_until(look, PATIENCE_S, "the group to be as it has to be", interval_s=0.2,
                   state=lambda: (seen, [path.read_text()[-800:] for path in tmp_path.glob("*.log")]))  # fmt: skip
        return seen[0]

    with JavaMembers(cluster, tmp_path, group, topic) as members:
        members.start("one", settings)
        members.start("two", settings)
        found = described(lambda each: len(each.members) == 2 and not each.problems and each.lag == 0
                          and each.lag_unknown == 0)  # fmt: skip
        assert (found.state, found.group_type, found.assignor) == ("Stable", group_type, assignor)
        assert [row.client_id for row in found.members] == ["one", "two"]
        assert [(row.subscribed, len(row.assigned)) for row in found.members] == [((topic,), 2), ((topic,), 2)]
        assert [row.offset for row in found.partitions] == [5, 5, 5, 5]
        assert admin.verify(group, patience_s=5).findings == ()
        with pytest.raises(GroupHasMembers, match="2 members are in it"):
            admin.set_offsets(group, topic, "earliest")
    described(lambda each: not each.members and not each.problems)
    assert admin.set_offsets(group, topic, "earliest").written
    assert admin.describe(group).lag == 20
