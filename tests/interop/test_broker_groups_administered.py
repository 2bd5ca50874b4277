"""Groups that real brokers coordinate, with members of other clients: shown, verified, changed and deleted."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simpleconsumer.calls.coordinator_client import GroupsClient
from simpleconsumer.dialect import dialect_of
from simpleconsumer.probe import probed_broker
from simpleconsumer.types import OffsetAndMetadata, TopicPartition
from tests.cli.command_line import run
from zkconsumer.admin import (
    Admin,
    BrokerAdmin,
    BrokerGroupReport,
    GroupHasMembers,
    GroupNotDeleted,
    LagChoice,
    NotFound,
    OffsetsNotSet,
)
from zkconsumer.testing import load
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytest.importorskip("kafka")

from broker_members import PATIENCE_S, PollingMember, kafka_python_member, newest_member

pytestmark = pytest.mark.real
VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "3.9.2"))]  # fmt: skip
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ADMIN.md").read_text(encoding="utf-8")
COUNT = 10
"""Messages of each of the two partitions."""


class Place:
    """A cluster, and administration of it by its brokers."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.since = version_tuple(cluster.version)
        self.brokers = f"127.0.0.1:{cluster.port(0)}"
        self.admin = BrokerAdmin(self.brokers)

    @property
    def lists_groups_without_members(self) -> bool:
        return self.since >= (0, 10, 1)

    def choice(self, *groups: str) -> LagChoice:
        """All groups of these names; named to brokers that do not list them all."""
        if self.lists_groups_without_members:
            return LagChoice(keeps_group=lambda name: name in groups)
        return LagChoice(groups)

    def topic(self) -> str:
        """A topic of two partitions with ten messages each."""
        name = f"clicks-{uuid.uuid4().hex[:8]}"
        self.cluster.create_topic(name, partitions=2)
        load(self.cluster, name, COUNT)
        return name

    def described(self, group: str, is_it: Callable[[BrokerGroupReport], object]) -> BrokerGroupReport:
        """The report of a group, once it is as it has to be."""
        seen: list[BrokerGroupReport] = []

        def look() -> bool:
            try:
                seen[:] = [self.admin.describe(group)]
            except NotFound:
                return False
            return bool(is_it(seen[0]))

        wait_until(look, PATIENCE_S, "the group to be as it has to be", interval_s=0.2, state=lambda: seen)
        return seen[0]

    def read_by(self, member: PollingMember, group: str) -> None:
        """Have a member read everything, commit it, and leave."""
        with member:
            member.read(2 * COUNT)
            self.described(group, lambda found: found.lag == 0 and not found.lag_unknown)
        self.emptied(group)

    def emptied(self, group: str) -> None:
        self.described(group, lambda found: not found.members and found.state in ("Empty", "Dead"))


@pytest.fixture(scope="module", params=VERSIONS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with KafkaCluster(request.param) as cluster:
        made = Place(cluster)
        topic = made.topic()
        with pytest.raises(NotFound, match="the cluster has no topic __consumer_offsets"):
            made.admin.describe("nothing")
        assert made.admin.groups().groups == ()
        made.admin.set_offsets("first", topic, "latest")  # from now on there are coordinators
        yield made


@pytest.fixture
def group() -> str:
    return f"billing-{uuid.uuid4().hex[:8]}"


def test_a_group_is_shown_with_its_members_and_what_each_has(place: Place, group: str) -> None:
    topic = place.topic()
    static = {"group_instance_id": "i-1"} if place.since >= (2, 4) else {}
    with (
        kafka_python_member(place.cluster, group, topic, client_id="one") as one,
        kafka_python_member(place.cluster, group, topic, client_id="two", **static),
    ):
        found = place.described(group, lambda each: len(each.members) == 2 and not each.problems and each.lag == 0)
        assert one.failure is None
        assert (found.state, found.protocol_type, found.group_type, found.assignor) == (
            "Stable", "consumer", "classic", "range",
        )  # fmt: skip
        assert found.coordinator_address == place.brokers
        assert [row.client_id for row in found.members] == ["one", "two"]
        assert {row.host for row in found.members} == {"127.0.0.1"}
        assert [row.instance_id for row in found.members] == [None, static.get("group_instance_id")]
        assert all(row.subscribed == (topic,) and len(row.assigned) == 1 for row in found.members)
        assert [(row.partition, row.offset, row.log_end, row.lag) for row in found.partitions] == [
            (0, COUNT, COUNT, 0), (1, COUNT, COUNT, 0),
        ]  # fmt: skip
        assert {row.owner for row in found.partitions} == {row.member_id for row in found.members}

        [row] = [row for row in place.admin.groups().groups if row.group == group]
        assert (row.members, row.owned, row.topics, row.coordination) == (2, 2, (topic,), "brokers")
        assert (row.state, row.offsets_in_kafka, row.coordinator) == ("Stable", True, found.coordinator)
        assert place.admin.verify(group, patience_s=5).findings == ()
        assert not [each for each in place.admin.verify(group, least_members=3, patience_s=0).faults
                    if each.kind != "too-few-members"]  # fmt: skip

        said = r"is not deleted: 2 members are in it \(.*one.* of 127.0.0.1, .* of 127.0.0.1\)"
        with pytest.raises(GroupHasMembers, match=said):
            place.admin.delete_groups(group)
        with pytest.raises(GroupHasMembers, match=r"no offset was set of group .*: 2 members are in it"):
            place.admin.set_offsets(group, topic, "earliest")
        with pytest.raises(GroupHasMembers, match="subscribes to it"):
            place.admin.delete_offsets(group, topic)
    place.emptied(group)


def test_offsets_are_set_moved_exported_imported_and_deleted(place: Place, group: str) -> None:
    topic = place.topic()
    other = place.topic()
    place.read_by(kafka_python_member(place.cluster, group, topic), group)
    admin = place.admin
    assert [row.offset for row in admin.offsets(group, topic).partitions] == [COUNT, COUNT]
    assert [(each.old, each.new) for each in admin.set_offsets(group, topic, "earliest", dry_run=True).changes] == [
        (COUNT, 0), (COUNT, 0),
    ]  # fmt: skip
    assert [row.offset for row in admin.offsets(group).partitions] == [COUNT, COUNT]

    assert admin.set_offsets(group, topic, 3, [1]).written
    assert [row.lag for row in admin.offsets(group).partitions] == [0, COUNT - 3]
    moved = admin.shift_offsets(group, None, -5)
    assert [each.new for each in moved.changes] == [COUNT - 5, 0]
    assert any("cut off at the start of its log" in note for note in moved.notes)
    with pytest.raises(OffsetsNotSet, match=f"99 cannot be set for .*its log has 0 to {COUNT}"):
        admin.set_offsets(group, topic, 99)
    with pytest.raises(NotFound, match="topic 'none' does not exist"):
        admin.set_offsets(group, "none", "earliest")

    admin.set_offsets(group, other, "latest")
    text = admin.export_offsets(group).to_text()
    assert f"/consumers/{group}/offsets/{topic}/0:{COUNT - 5}" in text.splitlines()
    assert f"/consumers/{group}/offsets/{other}/1:{COUNT}" in text.splitlines()
    admin.set_offsets(group, None, "earliest")
    assert [row.offset for row in admin.offsets(group).partitions] == [0, 0, 0, 0]
    assert sum(each.is_needed for each in admin.import_offsets(text).changes) == 3
    assert admin.export_offsets(group).to_text() == text

    deleted = admin.delete_offsets(group, other)
    assert [each.old for each in deleted.changes] == [COUNT, COUNT]
    assert bool(deleted.notes) == (place.since < (2, 4))
    assert {row.topic for row in admin.offsets(group).partitions} == {topic}

    # A time: brokers of Kafka 4 know no segments of one, and name messages.
    for moment, offset in (("2014-03-01T12:00:00Z", 0), ("2100-01-01T00:00:00Z", COUNT)):
        found = admin.set_offsets(group, topic, moment, dry_run=True)
        assert [each.new for each in found.changes] == [offset, offset]

    # A member goes on from what was set.
    with kafka_python_member(place.cluster, group, topic) as member:
        member.read(5 + COUNT)
        place.described(group, lambda found: found.lag == 0)
        assert member.count == 5 + COUNT
    place.emptied(group)


def test_a_group_whose_name_no_line_can_have_is_left_out_of_an_export_and_stops_no_other(
    place: Place, group: str
) -> None:
    """Brokers take every text as the name of a group."""
    topic = place.topic()
    odd, blank = f"{group}/a\nb", f"{group} with blanks"
    for name in (odd, blank):
        place.admin.set_offsets(name, topic, 3)
    exported = place.admin.export_offsets(odd, blank)
    if place.lists_groups_without_members:
        everything = place.admin.export_offsets()
        assert [each for each in everything.lines if each.group == blank] == list(exported.lines)
        assert [each for each in everything.problems if group in each] == list(exported.problems)
    assert {each.group for each in exported.lines} == {blank}
    [problem] = exported.problems
    assert f"{odd!r} has characters that are not allowed in a name" in problem
    place.admin.set_offsets(blank, topic, 5)
    place.admin.import_offsets(exported.to_text())
    assert {row.offset for row in place.admin.offsets(blank).partitions} == {3}
    for name in (odd, blank):
        place.admin.delete_offsets(name)


def test_a_group_without_a_name_is_shown_and_changed_like_every_other(place: Place, group: str) -> None:
    """Old clients store offsets so, and brokers take them."""
    topic, admin = place.topic(), place.admin
    with pytest.raises(OffsetsNotSet, match="the name of the group is empty"):
        admin.set_offsets("", topic, 3)
    admin.set_offsets(group, topic, 0)  # from now on there are coordinators
    broker = probed_broker("127.0.0.1", place.cluster.port(0))
    zero = TopicPartition(topic, 0)

    def store() -> None:
        with GroupsClient(broker.host, broker.port, PATIENCE_S, dialect=dialect_of(broker)) as client:
            assert client.commit_offsets("", {zero: OffsetAndMetadata(5)}) == {zero: 0}

    store()
    assert admin.describe("").lag == COUNT - 5
    assert [row.offset for row in admin.offsets("").partitions] == [5]
    assert [finding.kind for finding in admin.verify("", patience_s=0).faults] == ["too-few-members"]
    assert [each.lag for each in admin.lag("").groups] == [COUNT - 5]
    if place.lists_groups_without_members:
        assert "" in {row.group for row in admin.groups().groups}
    assert [each.new for each in admin.set_offsets("", topic, 7, [0]).changes] == [7]
    assert [each.new for each in admin.shift_offsets("", topic, -1, [0]).changes] == [6]
    [problem] = admin.export_offsets("").problems
    assert "the group '' has characters that are not allowed in a name" in problem
    deleted = admin.delete_offsets("", topic, [0])
    assert ([each.old for each in deleted.changes], len(deleted.notes)) == ([6], 1)
    store()
    [row] = admin.delete_groups("").groups
    assert row.offsets_in_kafka == 1


def test_a_group_is_deleted_when_it_is_empty(place: Place, group: str) -> None:
    topic = place.topic()
    place.read_by(kafka_python_member(place.cluster, group, topic), group)
    assert not place.admin.delete_groups(group, dry_run=True).deleted
    [row] = place.admin.delete_groups(group).groups
    assert (row.offsets_in_kafka, row.expires) == (2, place.since < (1, 1))
    if not row.expires:
        with pytest.raises(NotFound, match=f"group '{group}' does not exist at the brokers"):
            place.admin.describe(group)
        assert group not in {each.group for each in place.admin.groups().groups}
    with pytest.raises(NotFound):
        place.admin.delete_groups(group, "never-was")


def test_what_is_wrong_is_found(place: Place, group: str) -> None:
    topic, gone = place.topic(), f"gone-{uuid.uuid4().hex[:8]}"
    place.admin.set_offsets(group, topic, 5, [0])
    place.admin.set_offsets(group, topic, COUNT + 7, [1], force=True)
    found = place.admin.verify(group, least_members=0, patience_s=0)
    assert [(each.kind, each.path) for each in found.findings] == [("offset-beyond-log", "__consumer_offsets")]
    assert f"{topic}-1: its stored offset {COUNT + 7} is 7 beyond the end of its log" in found.findings[0].sentence
    assert [each.kind for each in place.admin.verify(group, patience_s=0).faults] == [
        "too-few-members", "offset-beyond-log",
    ]  # fmt: skip
    report = place.admin.describe(group)
    assert report.partitions[1].lag is None
    assert any("beyond the end of its log" in problem for problem in report.problems)
    with pytest.raises(NotFound, match=r"did you mean|existing groups|no group exists"):
        place.admin.verify(gone, patience_s=0)


def test_the_commands_print_what_the_library_returns(place: Place, group: str) -> None:
    topic = place.topic()
    where = ("--bootstrap-server", place.brokers)
    with kafka_python_member(place.cluster, group, topic, client_id="one") as member:
        member.read(2 * COUNT)
        place.described(group, lambda found: found.lag == 0 and not found.problems)
        shown = run("describe", group, *where)
        assert (shown.returncode, shown.stderr) == (0, b"")
        assert b"State Stable, classic protocol, assigned by range; coordinated by broker 0" in shown.stdout
        assert b"Each partition of each subscribed topic is assigned to a member." in shown.stdout
        report = json.loads(run("describe", group, *where, "--json").stdout)
        assert (report["coordination"], report["state"], report["lag"]) == ("brokers", "Stable", 0)
        assert report["members"][0]["assigned"] == [f"{topic}-0", f"{topic}-1"]
        listed = json.loads(run("groups", *where, "--state", "stable", "--json").stdout)["groups"]
        [row] = [row for row in listed if row["group"] == group]
        assert (row["member_count"], row["owned"], row["coordination"]) == (1, 2, "brokers")
        assert b"COORDINATED BY" in run("groups", *where).stdout
        assert run("verify", group, *where).returncode == 0
        refused = run("groups", "delete", group, *where)
        assert (refused.returncode, b"1 member is in it" in refused.stderr) == (1, True)
        refused = run("offsets", "set", group, *where, "--topic", topic, "--to", "earliest", "--force")
        assert (refused.returncode, b"1 member is in it" in refused.stderr) == (1, True)
    place.emptied(group)
    assert b"no member" not in run("verify", group, *where, "--members", "0").stdout
    assert run("offsets", "set", group, *where, "--topic", topic, "--to", "earliest").returncode == 0
    offsets = json.loads(run("offsets", "get", group, *where, "--json").stdout)["partitions"]
    assert [row["offset"] for row in offsets] == [0, 0]
    exported = run("offsets", "export", group, *where).stdout
    assert exported.splitlines()[0] == f"/consumers/{group}/offsets/{topic}/0:0".encode()
    assert run("offsets", "import", *where, "--input-file", "-", stdin=exported).returncode == 0
    assert run("offsets", "set", group, *where, "--all-topics", "--shift", "2").returncode == 0
    assert run("offsets", "delete", group, *where, "--topic", topic).returncode == 0
    for arguments in (("verify", group, "--trigger-rebalance"), ("offsets", "delete", group, "--store", "zookeeper")):
        refused = run(*arguments, *where)
        assert refused.returncode == 2, refused
    place.admin.set_offsets(group, topic, "latest")  # some brokers forget a group with its last offset
    assert f"{group} deleted: 2 offsets in Kafka".encode() in run("groups", "delete", group, *where).stdout


def test_the_program_of_the_page_runs(place: Place, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic = place.topic()
    [_, text, _] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for shown, real in (("b1:9092,b2:9092", place.brokers), ('"billing"', f'"{group}"'), ('"clicks"', f'"{topic}"')):
        assert shown in text
        text = text.replace(shown, real)
    with kafka_python_member(place.cluster, group, topic) as member:
        member.read(2 * COUNT)
        place.described(group, lambda found: found.lag == 0 and not found.problems)
        exec(compile(text, "ADMIN.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert f"{group} classic 0 1" in lines
    assert lines[-2].startswith(f"Stable range [('{topic}', 0, ")
    assert lines[-1].startswith(f"no offset was set of group '{group}': 1 member is in it")
    place.emptied(group)


def test_the_lag_of_groups_is_read_without_joining_them(place: Place, group: str) -> None:
    topic, idle = place.topic(), f"idle-{group}"
    place.admin.set_offsets(idle, topic, 4, [0])
    choice = place.choice(group, idle)
    with kafka_python_member(place.cluster, group, topic) as member:
        member.read(2 * COUNT)
        place.described(group, lambda found: found.lag == 0 and not found.lag_unknown)
        monitor = place.admin.lag_monitor(choice)
        mine, others = monitor.read().groups
        assert (mine.group, mine.coordination, mine.member_count, mine.owned, mine.unowned, mine.lag) == (
            group, "brokers", 1, 2, 0, 0,
        )  # fmt: skip
        assert [(row.offset, row.log_end, row.lag) for row in mine.partitions] == [(10, 10, 0)] * 2
        assert all(row.offset_in_kafka == 10 for row in mine.partitions)
        assert all(row.owner for row in mine.partitions)
        assert (others.group, others.member_count, others.unowned, others.lag, others.lag_unknown) == (idle, 0, 0, 6, 0)
        load(place.cluster, topic, COUNT, first=COUNT)
        wait_until(lambda: [each.lag for each in monitor.read().groups] == [0, 16], PATIENCE_S, "the commit")
        rates = [each.topics_lag[0] for each in monitor.read().groups]
        assert rates[0].consumed_per_s == rates[0].produced_per_s > 0.0  # type: ignore[operator]
        assert (rates[0].catch_up_s, rates[1].consumed_per_s, rates[1].catch_up_s) == (0.0, 0.0, None)
        assert place.admin.lag(idle).groups[0].lag == 16
        with pytest.raises(NotFound):
            place.admin.lag("nobody")

        where = ("--bootstrap-server", place.brokers)
        which = ("--all", "--group-filter", f".*{group}") if place.lists_groups_without_members else (group, idle)
        shown = run("lag", *which, *where).stdout.decode()
        assert re.search(rf"^{idle} +{topic} +1 +0 +16 +0$", shown, re.MULTILINE), shown
        found = json.loads(run("lag", group, *where, "--json").stdout)
        assert [(each["coordination"], each["lag"]) for each in found["groups"]] == [("brokers", 0)]
        assert b"nobody" in run("lag", "nobody", *where).stderr
    place.emptied(group)


def test_the_exporter_serves_groups_of_brokers(place: Place, group: str) -> None:
    exporting = pytest.importorskip("zkconsumer.lag_exporter")
    topic = place.topic()
    place.admin.set_offsets(group, topic, 4, [0])
    place.admin.set_offsets(group, topic, 1, [1])
    with exporting.LagExporter(brokers=place.brokers, choice=place.choice(group)) as exporter:
        wait_until(lambda: exporter.state().reads, PATIENCE_S, "a round", state=exporter.state)
        metrics = list(exporting.LagCollector(exporter).collect())
    [lag] = [metric for metric in metrics if metric.name == "zkconsumer_group_lag_messages"]
    found = {each.labels["partition"]: each.value for each in lag.samples if each.labels["group"] == group}
    assert found == {"0": 6.0, "1": 9.0}
    with pytest.raises(TypeError, match="give either zookeeper or brokers"):
        exporting.LagExporter()


def test_groups_of_both_kinds_stand_beside_each_other(place: Place, group: str) -> None:
    if place.cluster.is_kraft:
        pytest.skip("there is no ZooKeeper")
    topic = place.topic()
    old = f"old-{group}"
    with Admin(place.cluster.zookeeper_connect) as admin, kafka_python_member(place.cluster, group, topic) as member:
        member.read(2 * COUNT)
        place.described(group, lambda found: found.lag == 0)
        admin.set_offsets(old, topic, "earliest", store="both")
        rows = {row.group: row for row in admin.groups().groups}
        assert (rows[old].coordination, rows[old].state, rows[old].offsets_in_kafka) == ("zookeeper", None, True)
        assert (rows[group].coordination, rows[group].members, rows[group].state) == ("brokers", 1, "Stable")
        assert admin.is_coordinated_by_brokers(group)
        assert not admin.is_coordinated_by_brokers(old)
        assert admin.broker_groups.describe(group).lag == 0
        lags = {each.group: (each.coordination, each.lag) for each in admin.lag().groups}
        assert (lags[old], lags[group]) == (("zookeeper", 2 * COUNT), ("brokers", 0))
        assert [each.group for each in admin.lag(old, group).groups] == sorted([old, group])
        assert [each.coordination for each in admin.lag(group).groups] == ["brokers"]
        where = ("--zookeeper", place.cluster.zookeeper_connect)
        assert json.loads(run("describe", group, *where, "--json").stdout)["coordination"] == "brokers"
        assert json.loads(run("describe", old, *where, "--json").stdout)["coordination"] == "zookeeper"
        refused = run("groups", "delete", old, group, *where)
        assert (refused.returncode, b"1 member is in it" in refused.stderr) == (1, True)
        assert old in {row.group for row in admin.groups().groups}

        # A group in ZooKeeper of the same name: neither knows of the other, and Kafka takes no offsets but of members.
        admin.set_offsets(group, topic, "earliest", store="zookeeper")
        rows = [row for row in admin.groups().groups if row.group == group]
        assert [(row.coordination, row.members) for row in rows] == [("zookeeper", 0), ("brokers", 1)]
        assert not admin.is_coordinated_by_brokers(group)
        with pytest.raises(GroupHasMembers, match=r"coordinate a group of that name with 1 member \(.* of 127.0.0.1\)"):
            admin.set_offsets(group, topic, "earliest", store="kafka")
        with pytest.raises(GroupNotDeleted, match=f"brokers coordinate a group '{group}', too"):
            admin.delete_groups(group)
        [finding] = [each for each in admin.verify(group, patience_s=0).findings if each.kind == "same-name"]
        assert "with 1 member" in finding.sentence
    place.emptied(group)
    if place.since >= (0, 10):  # before, a group without members is none
        where = ("--zookeeper", place.cluster.zookeeper_connect)
        refused = run("groups", "delete", group, *where)
        assert (refused.returncode, b"--store zookeeper" in refused.stderr) == (1, True)
        assert place.admin.describe(group).lag == 0
    with Admin(place.cluster.zookeeper_connect) as admin:
        admin.delete_groups(group, store="zookeeper")
    assert run("groups", "delete", old, group, "--zookeeper", place.cluster.zookeeper_connect).returncode == 0


def test_groups_of_the_newest_protocol_are_shown_by_their_own_request(place: Place, group: str) -> None:
    if place.since < (4, 0):
        pytest.skip("brokers before Kafka 4.0 do not serve that protocol")
    topic = place.topic()
    with (
        newest_member(place.cluster, group, topic, client_id="one"),
        newest_member(place.cluster, group, topic, client_id="two"),
    ):
        found = place.described(group, lambda each: len(each.members) == 2 and not each.problems and each.lag == 0)
        assert (found.state, found.protocol_type, found.group_type, found.assignor) == (
            "Stable", "consumer", "consumer", "uniform",
        )  # fmt: skip
        assert found.epoch == found.assignment_epoch
        assert [row.client_id for row in found.members] == ["one", "two"]
        assert all(row.assigned == row.target and row.subscribed == (topic,) for row in found.members)
        assert {row.epoch for row in found.members} == {found.epoch}
        [row] = [row for row in place.admin.groups().groups if row.group == group]
        assert (row.group_type, row.members, row.owned) == ("consumer", 2, 2)
        assert place.admin.verify(group, patience_s=5).findings == ()
        with pytest.raises(GroupHasMembers, match="2 members are in it"):
            place.admin.set_offsets(group, topic, "earliest")
        assert (
            b"consumer protocol, assigned by uniform"
            in run("describe", group, "--bootstrap-server", place.brokers).stdout
        )
    place.emptied(group)
    place.admin.set_offsets(group, topic, 4)
    assert [row.lag for row in place.admin.describe(group).partitions] == [COUNT - 4] * 2
    assert TopicPartition(topic, 0) in place.admin.read(group).offsets
    place.admin.delete_offsets(group, topic, [0])
    assert [row.offset for row in place.admin.describe(group).partitions] == [4]
    place.admin.delete_groups(group)
    with pytest.raises(NotFound):
        place.admin.describe(group)
