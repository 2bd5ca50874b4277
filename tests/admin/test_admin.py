"""`zkconsumer.admin` on an embedded cluster: what it returns, changes and refuses, and the program of docs/ADMIN.md."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import zkconsumer.admin
from rebalance.errors import InvalidName, NamespaceMissing
from zkconsumer import ConfigError, ConsumerConfig, ConsumerConnector, ZkConsumerError
from zkconsumer.admin import (
    Admin,
    AdminError,
    ClaimNotReleased,
    GroupHasMembers,
    NotFound,
    OffsetsNotSet,
    Released,
    Verification,
)
from zkconsumer.cli.program import program
from zkconsumer.cluster.zookeeper_connection import ZooKeeperSilent
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import load

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ADMIN.md").read_text(encoding="utf-8")
OFFSETS = {0: 1, 1: 3}


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_group: str) -> str:
    """A topic of two partitions with three messages each."""
    name = fresh_group.replace("group", "topic")
    embedded_cluster.create_topic(name, 2)
    load(embedded_cluster, name, 3)
    return name


@pytest.fixture
def group(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> str:
    """A group without members that has stored offsets."""
    for partition, offset in OFFSETS.items():
        path = f"/consumers/{fresh_group}/offsets/{topic}/{partition}"
        embedded_cluster.client.create(path, str(offset).encode(), makepath=True)
    return fresh_group


@pytest.fixture
def admin(embedded_cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(embedded_cluster.zookeeper_connect) as opened:
        yield opened


@pytest.fixture
def member(embedded_cluster: EmbeddedCluster, group: str, topic: str) -> Iterator[str]:
    """The consumer id of a member that owns both partitions."""
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, group, consumer_id="ann", auto_commit_enable=False)
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        yield f"{group}_ann"


def stored(admin: Admin, group: str) -> dict[int | str, int | None]:
    return {row.partition: row.offset for row in admin.offsets(group).partitions}


# -- inspecting --------------------------------------------------------------------------------------------------------


def test_a_group_with_a_member_is_described(admin: Admin, group: str, topic: str, member: str) -> None:
    found = admin.describe(group)
    assert [(row.consumer_id, row.pattern, row.subscription) for row in found.members] == [
        (member, "static", {topic: 1})
    ]
    assert [(row.partition, row.offset, row.log_end, row.lag, row.owner) for row in found.partitions] == [
        (0, 1, 3, 2, f"{member}-0"), (1, 3, 3, 0, f"{member}-0"),
    ]  # fmt: skip
    assert (found.lag, found.lag_unknown, found.problems) == (2, 0, ())
    groups = admin.groups()
    assert groups.active().groups == tuple(row for row in groups.groups if row.members != 0)
    [row] = [row for row in groups.groups if row.group == group]
    assert (row.members, row.owned, row.topics) == (1, 2, (topic,))


def test_topics_are_reported(admin: Admin, topic: str) -> None:
    found = admin.topics(topic)
    assert [(row.partition, row.earliest, row.latest, row.problems) for row in found.partitions] == [
        (0, 0, 3, ()), (1, 0, 3, ()),
    ]  # fmt: skip
    assert found.problems == ()


def test_a_sound_group_is_verified(admin: Admin, group: str, member: str) -> None:
    assert member.startswith(group)
    assert admin.verify(group) == Verification(group, 1, 2, "range", ())


def test_a_group_without_members_has_a_fault_with_its_remedy(admin: Admin, group: str) -> None:
    waited: list[bool] = []
    found = admin.verify(group, patience_s=0, on_wait=lambda: waited.append(True))
    assert [fault.kind for fault in found.faults] == ["too-few-members"]
    assert found.faults[0].remedy == "start the consumers"
    assert waited == []


@pytest.mark.parametrize("arguments", [
    ["groups"], ["topics", "TOPIC"], ["describe", "GROUP"], ["verify", "GROUP", "--patience", "0"],
    ["offsets", "get", "GROUP"], ["offsets", "set", "GROUP", "--topic", "TOPIC", "--to", "latest", "--dry-run"],
    ["offsets", "export", "GROUP"], ["offsets", "delete", "GROUP", "--dry-run"], ["release", "GROUP", "TOPIC", "0"],
    ["groups", "delete", "GROUP", "--dry-run"],
])  # fmt: skip
def test_json_is_that_of_the_command(
    admin: Admin, embedded_cluster: EmbeddedCluster, group: str, topic: str, arguments: list[str]
) -> None:
    calls: dict[str, Callable[[], zkconsumer.admin.values.JsonValue]] = {
        "groups": admin.groups, "topics": lambda: admin.topics(topic), "describe": lambda: admin.describe(group),
        "verify": lambda: admin.verify(group, patience_s=0), "get": lambda: admin.offsets(group),
        "set": lambda: admin.set_offsets(group, topic, "latest", dry_run=True),
        "export": lambda: admin.export_offsets(group), "release": lambda: admin.release(group, topic, 0),
        "delete": lambda: admin.delete_offsets(group, dry_run=True),
        "groups delete": lambda: admin.delete_groups(group, dry_run=True),
    }  # fmt: skip
    words = [{"GROUP": group, "TOPIC": topic}.get(word, word) for word in arguments]
    call = [*words, "--zookeeper", embedded_cluster.zookeeper_connect, "--json"]
    shown = CliRunner().invoke(program, call).stdout
    name = arguments[1] if arguments[0] == "offsets" else arguments[0]
    found = calls["groups delete" if arguments[:2] == ["groups", "delete"] else name]()
    assert shown == found.to_json() + "\n"
    assert json.loads(shown) == json.loads(json.dumps(found.to_dict()))


# -- changing ----------------------------------------------------------------------------------------------------------


def test_offsets_are_set(admin: Admin, group: str, topic: str) -> None:
    tried = admin.set_offsets(group, topic, "earliest", dry_run=True)
    assert [(each.partition, each.old, each.new) for each in tried.changes] == [("0", 1, 0), ("1", 3, 0)]
    assert (tried.written, stored(admin, group)) == (False, {0: 1, 1: 3})
    assert admin.set_offsets(group, topic, 2, [1]).written
    assert stored(admin, group) == {0: 1, 1: 2}
    assert admin.set_offsets(group, topic, "2014-03-01T12:00:00Z").written
    assert stored(admin, group) == {0: 0, 1: 0}


def test_offsets_of_a_new_group_are_set(admin: Admin, fresh_group: str, topic: str) -> None:
    assert admin.set_offsets(f"{fresh_group}-new", topic, "latest").new_groups == (f"{fresh_group}-new",)
    assert stored(admin, f"{fresh_group}-new") == {0: 3, 1: 3}


def test_a_new_group_is_reported_before_anything_is_written(
    admin: Admin, embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    reported: list[tuple[str, bool]] = []

    def report(group: str) -> None:
        reported.append((group, embedded_cluster.client.exists(f"/consumers/{group}") is not None))

    admin.set_offsets(f"{fresh_group}-new", topic, "latest", on_new_group=report)
    admin.set_offsets(f"{fresh_group}-new", topic, "earliest", on_new_group=report)
    assert reported == [(f"{fresh_group}-new", False)]


def test_what_is_exported_can_be_imported(admin: Admin, group: str, topic: str) -> None:
    exported = admin.export_offsets(group)
    root = f"/consumers/{group}/offsets/{topic}"
    assert exported.to_text() == f"{root}/0:1\n{root}/1:3\n"
    assert exported.problems == ()
    admin.set_offsets(group, topic, "earliest")
    assert len(admin.import_offsets(exported.to_text()).changes) == 2
    assert stored(admin, group) == OFFSETS


def test_offsets_of_a_live_group_are_set_by_force_alone(admin: Admin, group: str, topic: str, member: str) -> None:
    with pytest.raises(GroupHasMembers, match=member) as refused:
        admin.set_offsets(group, topic, "earliest")
    assert refused.value.remedy == "stop them first, or set the offsets nevertheless: force=True, --force"
    warnings: list[str] = []
    assert admin.set_offsets(group, topic, "earliest", force=True, warn=warnings.append).written
    assert [member in warning for warning in warnings] == [True]


def test_a_claim_without_an_owner_is_released(
    admin: Admin, embedded_cluster: EmbeddedCluster, group: str, topic: str
) -> None:
    path = f"/consumers/{group}/owners/{topic}/0"
    assert admin.release(group, topic, 0) == Released(path, None, False)
    embedded_cluster.client.create(path, f"{group}_gone-0".encode(), makepath=True)
    tried = admin.release(group, topic, 0, dry_run=True)
    assert not tried.is_released
    assert embedded_cluster.client.exists(path) is not None
    assert admin.release(group, topic, 0) == dataclasses.replace(tried, is_released=True)
    assert embedded_cluster.client.exists(path) is None


def test_the_claim_of_a_living_member_is_not_released(admin: Admin, group: str, topic: str, member: str) -> None:
    with pytest.raises(ClaimNotReleased, match=f"{member}, which is registered") as refused:
        admin.release(group, topic, 0)
    assert refused.value.remedy.startswith(f"stop {member} first")


def test_a_rebalance_is_triggered(admin: Admin, embedded_cluster: EmbeddedCluster, group: str, member: str) -> None:
    assert member.startswith(group)
    before = embedded_cluster.client.exists(f"/consumers/{group}/ids").cversion
    admin.trigger_rebalance(group)
    assert embedded_cluster.client.exists(f"/consumers/{group}/ids").cversion == before + 2


# -- errors ------------------------------------------------------------------------------------------------------------


def test_names_that_do_not_exist_are_errors_with_a_remedy(admin: Admin, group: str, topic: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: admin.describe(f"{group}x"), lambda: admin.verify(f"{group}x"), lambda: admin.topics(f"{topic}x"),
        lambda: admin.offsets(group, f"{topic}x"), lambda: admin.set_offsets(group, f"{topic}x", 0),
        lambda: admin.set_offsets(group, topic, 0, [7]), lambda: admin.export_offsets(f"{group}x"),
        lambda: admin.release(f"{group}x", topic, 0), lambda: admin.trigger_rebalance(f"{group}x"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(NotFound) as missing:
            call()
        assert missing.value.remedy
        assert str(missing.value) == f"{missing.value.sentence}; {missing.value.remedy}"


def test_targets_and_lines_that_cannot_be_used_change_nothing(admin: Admin, group: str, topic: str) -> None:
    with pytest.raises(ValueError, match="'soon' is not earliest, latest"):
        admin.set_offsets(group, topic, "soon")
    with pytest.raises(OffsetsNotSet, match="its log has 0 to 3"):
        admin.set_offsets(group, topic, 4)
    with pytest.raises(OffsetsNotSet, match="the text has 1 line that cannot be used: line 1: 'nonsense'"):
        admin.import_offsets("nonsense\n")
    with pytest.raises(OffsetsNotSet, match="the text holds no offsets"):
        admin.import_offsets("\n")
    with pytest.raises(InvalidName):
        admin.describe("a/b")
    assert stored(admin, group) == OFFSETS


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is 'zk:x'"):
        Admin("zk:x")


def test_a_strategy_that_is_none_is_named_with_those_that_are(admin: Admin, group: str) -> None:
    with pytest.raises(ValueError, match="strategies has 'bogus'; it must be some of range, roundrobin"):
        admin.verify(group, strategies=("bogus",))


def test_errors_of_other_packages_have_a_remedy_too(admin: Admin) -> None:
    with pytest.raises(InvalidName) as refused:
        admin.describe("a/b")
    assert "1 to 255 of" in refused.value.remedy
    assert ZooKeeperSilent("no answer").remedy


def test_errors_have_one_root() -> None:
    for name in zkconsumer.admin.__all__:
        value = getattr(zkconsumer.admin, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, AdminError)
            assert issubclass(value, ZkConsumerError)


def test_the_connection_is_that_of_the_properties(embedded_cluster: EmbeddedCluster) -> None:
    zookeeper = embedded_cluster.zookeeper_connect
    with Admin(zookeeper, properties={"zookeeper.session.timeout.ms": "4000"}) as admin:
        admin.groups()
    with pytest.raises(ConfigError, match="zookeeper\\.acl"):
        Admin(zookeeper, properties={"zookeeper.acl": "everybody"})
    with pytest.raises(NamespaceMissing):
        Admin(f"{zookeeper}/elsewhere")


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_program_of_the_page_runs(
    embedded_cluster: EmbeddedCluster, admin: Admin, group: str, topic: str, tmp_path: Path
) -> None:
    # The second one is in tests/interop/test_broker_groups_administered.py.
    [text, _, _] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for shown, real in (
        ("zk1:2181,zk2:2181/kafka", embedded_cluster.zookeeper_connect), ('"billing"', f'"{group}"'),
        ('"clicks"', f'"{topic}"'),
    ):  # fmt: skip
        assert shown in text
        text = text.replace(shown, real)
    script = tmp_path / "program.py"
    script.write_text(text)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    first, second, fault, changes = ran.stdout.splitlines()
    assert (first, second) == (f"{topic} 0 None 1 2", f"{topic} 1 None 3 0")
    assert fault == "too-few-members the group has no members - start the consumers"
    assert [each["new"] for each in json.loads(changes)["changes"]] == [0, 0]
    assert stored(admin, group) == {0: 0, 1: 0}


def test_the_page_names_every_method_and_every_error() -> None:
    methods = {name for name in dir(Admin) if not name.startswith("_")} - {"close"}
    assert methods == set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    values = {name: getattr(zkconsumer.admin, name) for name in zkconsumer.admin.__all__}
    errors = {name for name, value in values.items() if isinstance(value, type) and issubclass(value, Exception)}
    assert {*errors, "InvalidName", "ZooKeeperSilent"} <= set(re.findall(r"`(\w+)`", PAGE))
