"""Offsets that are set, shifted, deleted, exported and imported in both stores, and groups that are deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from tests.admin.both_stores import in_kafka, in_zookeeper, store_in_kafka, store_in_zookeeper
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.admin import (
    Admin,
    DeletedGroup,
    GroupHasMembers,
    GroupNotDeleted,
    NotFound,
    OffsetsNotSet,
)
from zkconsumer.admin.groups import group_deletion
from zkconsumer.admin.offsets import offset_changes
from zkconsumer.admin.offsets.group_offsets import note_of_kept_offsets
from zkconsumer.admin.offsets.kafka_offsets import OffsetsInKafka
from zkconsumer.cli.program import program
from zkconsumer.testing import EmbeddedCluster, Fault, load
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real

Cluster = EmbeddedCluster


@pytest.fixture
def topic(embedded_cluster: Cluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions with ten messages each."""
    name = fresh_topic()
    embedded_cluster.create_topic(name, 2)
    load(embedded_cluster, name, 10)
    return name


@pytest.fixture
def admin(embedded_cluster: Cluster) -> Iterator[Admin]:
    with Admin(embedded_cluster.zookeeper_connect) as opened:
        yield opened


@pytest.fixture
def command(embedded_cluster: Cluster) -> Callable[..., Result]:
    """Runs `zkconsumer ...` on the cluster."""

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        call = [*arguments, "--zookeeper", embedded_cluster.zookeeper_connect]
        return CliRunner().invoke(program, call, input=stdin, prog_name="zkconsumer")

    return invoke


def stores(cluster: Cluster, group: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """The offsets in ZooKeeper, and those in Kafka."""
    return in_zookeeper(cluster, group, topic), in_kafka(cluster, group, topic)


# -- set ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "store", "after"),
    [
        ((None, None), None, ({0: 3, 1: 3}, {})),
        ((1, None), None, ({0: 3, 1: 3}, {})),
        ((None, 1), None, ({}, {0: 3, 1: 3})),
        ((1, 2), None, ({0: 3, 1: 3}, {0: 3, 1: 3})),
        ((1, 2), "zookeeper", ({0: 3, 1: 3}, {0: 2})),
        ((1, 2), "kafka", ({0: 1}, {0: 3, 1: 3})),
        ((None, None), "both", ({0: 3, 1: 3}, {0: 3, 1: 3})),
    ],
)
def test_offsets_are_set_where_the_group_has_some_or_where_it_is_said(
    embedded_cluster: Cluster,
    admin: Admin,
    topic: str,
    fresh_group: str,
    before: tuple[int | None, int | None],
    store: str | None,
    after: tuple[dict[int, int], dict[int, int]],
) -> None:
    zookeeper, kafka = before
    if zookeeper is not None:
        store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: zookeeper})
    if kafka is not None:
        store_in_kafka(embedded_cluster, fresh_group, topic, {0: kafka})
    tried = admin.set_offsets(fresh_group, topic, 3, store=store, dry_run=True)
    assert stores(embedded_cluster, fresh_group, topic) == (
        {} if zookeeper is None else {0: zookeeper}, {} if kafka is None else {0: kafka},
    )  # fmt: skip
    found = admin.set_offsets(fresh_group, topic, 3, store=store)
    assert found.changes == tried.changes
    assert {change.store for change in found.changes} == {
        name for name, offsets in zip(("zookeeper", "kafka"), after, strict=True) if 1 in offsets
    }
    assert stores(embedded_cluster, fresh_group, topic) == after


def test_a_member_that_stores_in_kafka_starts_where_its_offset_was_set(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 2, 1: 2})
    admin.set_offsets(fresh_group, topic, 8)
    config = ConsumerConfig(
        embedded_cluster.zookeeper_connect, fresh_group, offsets_storage="kafka", dual_commit_enabled=False,
        consumer_timeout_ms=500,
    )  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        first = [next(stream) for _ in range(4)]
    assert sorted((message.partition, message.offset) for message in first) == [(0, 8), (0, 9), (1, 8), (1, 9)]


def test_each_line_of_a_change_in_both_stores_names_its_store(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 2})
    done = command("offsets", "set", fresh_group, "--topic", topic, "--partition", "0", "--to", "5")
    assert done.stdout.splitlines() == [
        f"{fresh_group} {topic}-0 in ZooKeeper: 1 -> 5", f"{fresh_group} {topic}-0 in Kafka: 2 -> 5",
    ]  # fmt: skip


@pytest.mark.usefixtures("soon_given_up")
def test_without_an_offset_manager_a_change_is_refused_unless_zookeeper_is_chosen(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    calls: list[Callable[[], object]] = [
        lambda: admin.set_offsets(fresh_group, topic, 5),
        lambda: admin.delete_offsets(fresh_group),
        lambda: admin.import_offsets(f"/consumers/{fresh_group}/offsets/{topic}/0:5\n"),
    ]
    for call in calls:
        with pytest.raises(OffsetsNotSet, match=r"the offsets of group .* in Kafka are not known") as refused:
            call()
        assert "store='zookeeper', --store zookeeper" in refused.value.remedy
    with pytest.raises(GroupNotDeleted, match="are not known") as kept:
        admin.delete_groups(fresh_group)
    assert "--store zookeeper" in kept.value.remedy
    assert in_zookeeper(embedded_cluster, fresh_group, topic) == {0: 1, 1: 1}
    admin.set_offsets(fresh_group, topic, 5, store="zookeeper")
    assert in_zookeeper(embedded_cluster, fresh_group, topic) == {0: 5, 1: 5}


def test_an_offset_in_kafka_that_somebody_has_changed_is_not_overwritten(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    real = OffsetsInKafka.fetch

    def fetch_late(self: OffsetsInKafka, *arguments: object) -> object:
        store_in_kafka(embedded_cluster, fresh_group, topic, {1: 2})  # a member commits between plan and write
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OffsetsInKafka, "fetch", fetch_late)
    with pytest.raises(OffsetsNotSet) as refused:
        admin.set_offsets(fresh_group, topic, 5)
    assert refused.value.sentence == (
        f"the offset of {topic}-1 of group {fresh_group!r} in Kafka is not written: another client has changed it "
        "in the meantime: it was 1, it is 2; 0 of 2 offsets in Kafka were written, and none in ZooKeeper"
    )
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 1, 1: 1}, {0: 1, 1: 2})


def test_an_offset_that_the_manager_does_not_take_leaves_zookeeper_as_it_was(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1, 1: 1})
    embedded_cluster.faults.add(Fault.error(12, "offset_commit", topic, 1), times=None)
    with pytest.raises(OffsetsNotSet, match="1 of 2 offsets in Kafka were written, and none in ZooKeeper"):
        admin.set_offsets(fresh_group, topic, 5)
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 1, 1: 1}, {0: 5, 1: 1})


def test_all_topics_of_a_group_are_set_in_one_call(
    embedded_cluster: Cluster,
    admin: Admin,
    command: Callable[..., Result],
    topic: str,
    fresh_group: str,
    fresh_topic: Callable[[], str],
) -> None:
    other = fresh_topic()
    embedded_cluster.create_topic(other, 1)
    load(embedded_cluster, other, 4)
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    store_in_zookeeper(embedded_cluster, fresh_group, "gone", {0: 1})
    store_in_kafka(embedded_cluster, fresh_group, other, {0: 1})
    done = command("offsets", "set", fresh_group, "--all-topics", "--to", "latest")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines()[0] == "note: left out, because the topic does not exist: gone"
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 10, 1: 10}, {0: 10, 1: 10})
    assert (in_zookeeper(embedded_cluster, fresh_group, other), in_kafka(embedded_cluster, fresh_group, other, 1)) == (
        {0: 4}, {0: 4},
    )  # fmt: skip
    assert in_zookeeper(embedded_cluster, fresh_group, "gone") == {0: 1}
    with pytest.raises(NotFound):
        admin.set_offsets(f"{fresh_group}-none", None, "latest")


def test_all_topics_of_a_group_with_members_are_also_those_in_kafka_alone(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    other = fresh_topic()
    embedded_cluster.create_topic(other, 1)
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, fresh_group, consumer_id="ann")
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({other: 1})
        found = admin.set_offsets(fresh_group, None, "earliest", force=True, store="kafka")
    assert {change.topic for change in found.changes} == {topic, other}


@pytest.mark.parametrize("topics", [(), ("gone",)])
def test_all_topics_of_a_group_whose_topics_are_gone_is_refused(
    embedded_cluster: Cluster, command: Callable[..., Result], fresh_group: str, topics: tuple[str, ...]
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    for name in topics:
        store_in_zookeeper(embedded_cluster, fresh_group, name, {0: 1})
    refused = command("offsets", "set", fresh_group, "--all-topics", "--to", "earliest")
    assert refused.exit_code == 1
    said = "exists (gone)" if topics else "reads no topic and has no offsets"
    assert said in refused.stderr


# -- shift -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "new", "notes"), [
    (3, [7, 10], ["{topic}-1: cut off at the end of its log, 10; 9+3 would be 12"]),
    (-2, [2, 7], []),
    (-5, [0, 4], ["{topic}-0: cut off at the start of its log, 0; 4-5 would be -1"]),
    (10**30, [10, 10], ["{topic}-0: cut off at the end of its log, 10; ", "{topic}-1: cut off at the end"]),
])  # fmt: skip
def test_offsets_are_shifted_to_the_bounds_of_the_log(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, by: int, new: list[int], notes: list[str]
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 4, 1: 9})
    found = admin.shift_offsets(fresh_group, topic, by)
    assert [change.new for change in found.changes] == new
    assert len(found.notes) == len(notes)
    for shown, expected in zip(found.notes, notes, strict=True):
        assert shown.startswith(expected.format(topic=topic))
    assert in_zookeeper(embedded_cluster, fresh_group, topic) == dict(enumerate(new))


def test_a_shift_moves_each_store_from_its_own_offset_and_asks_which_where_they_differ(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 4})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 8})
    for by in ("0", "-1"):
        refused = command("offsets", "set", fresh_group, "--all-topics", "--shift", by)
        assert refused.exit_code == 1
        assert f"the stores of group {fresh_group!r} differ ({topic}-0: 4 in ZooKeeper, 8 in Kafka)" in refused.stderr
        assert "--store zookeeper or kafka" in refused.stderr
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 4}, {0: 8})
    done = command("offsets", "set", fresh_group, "--all-topics", "--shift", "-1", "--store", "both")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[0] == f"note: left out, because they have no stored offset: {topic}-1"
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 3}, {0: 7})
    done = command("offsets", "set", fresh_group, "--topic", topic, "--shift", "2", "--store", "kafka", "--json")
    [change] = json.loads(done.stdout)["changes"]
    assert (change["old"], change["new"], change["store"]) == (7, 9, "kafka")


def test_a_shift_gives_a_store_no_offset_that_it_did_not_have(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    embedded_cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", b"soon", makepath=True)
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 8})
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {1: 4})
    [note] = admin.shift_offsets(fresh_group, topic, -1).notes
    assert note.startswith("left out in ZooKeeper: ")
    assert embedded_cluster.client.get(f"/consumers/{fresh_group}/offsets/{topic}/0")[0] == b"soon"
    assert in_kafka(embedded_cluster, fresh_group, topic) == {0: 7}
    assert embedded_cluster.client.get(f"/consumers/{fresh_group}/offsets/{topic}/1")[0] == b"3"


def test_a_shift_without_any_offset_is_refused(admin: Admin, topic: str, fresh_group: str) -> None:
    with pytest.raises(NotFound):
        admin.shift_offsets(fresh_group, topic, 1)


@pytest.mark.parametrize(("options", "said"), [
    (["--to", "1"], "exactly one of --topic and --all-topics"),
    (["--topic", "t", "--all-topics", "--to", "1"], "exactly one of --topic and --all-topics"),
    (["--topic", "t"], "exactly one of --to and --shift"),
    (["--topic", "t", "--to", "1", "--shift", "1"], "exactly one of --to and --shift"),
    (["--all-topics", "--partition", "1", "--to", "1"], "--partition needs --topic"),
    (["--topic", "t", "--to", "1", "--store", "disk"], "'disk' is not one of"),
])  # fmt: skip
def test_wrong_usage_of_set_is_refused(command: Callable[..., Result], options: list[str], said: str) -> None:
    refused = command("offsets", "set", "g", *options)
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_arguments_that_are_none_are_value_errors(admin: Admin) -> None:
    with pytest.raises(ValueError, match="store is 'disk'; it must be one of zookeeper, kafka, both"):
        admin.set_offsets("g", "t", 1, store="disk")
    with pytest.raises(ValueError, match=r"partitions \[1\] are given without a topic"):
        admin.delete_offsets("g", None, [1])
    with pytest.raises(ValueError, match="give the name of at least one group"):
        admin.delete_groups()


# -- delete ------------------------------------------------------------------------------------------------------------


def test_offsets_of_a_topic_are_deleted_in_both_stores(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 2})
    store_in_zookeeper(embedded_cluster, fresh_group, "other", {0: 3})
    store_in_kafka(embedded_cluster, fresh_group, topic, {1: 4})
    tried = command("offsets", "delete", fresh_group, "--topic", topic, "--dry-run")
    assert tried.stderr == "3 offsets would be deleted, 0 unchanged\n"
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 1, 1: 2}, {1: 4})
    done = command("offsets", "delete", fresh_group, "--topic", topic)
    assert done.stdout.splitlines() == [
        f"{fresh_group} {topic}-0 in ZooKeeper: 1 -> none", f"{fresh_group} {topic}-1 in ZooKeeper: 2 -> none",
        f"{fresh_group} {topic}-1 in Kafka: 4 -> none",
    ]  # fmt: skip
    assert stores(embedded_cluster, fresh_group, topic) == ({}, {})
    assert embedded_cluster.client.exists(f"/consumers/{fresh_group}/offsets/{topic}") is None
    assert in_zookeeper(embedded_cluster, fresh_group, "other") == {0: 3}
    again = command("offsets", "delete", fresh_group, "--topic", topic)
    assert again.exit_code == 1
    assert f"has no offset for topic {topic!r} in ZooKeeper" in again.stderr


def test_one_partition_is_deleted_in_one_store(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 2})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 3, 1: 4})
    admin.delete_offsets(fresh_group, topic, [1], store="kafka")
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 1, 1: 2}, {0: 3})
    with pytest.raises(NotFound, match=r"no offset of partition 1 of topic .* in Kafka; it has offsets for 0"):
        admin.delete_offsets(fresh_group, topic, [1], store="kafka")


def test_a_node_that_is_no_offset_is_deleted(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    embedded_cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", b"seven", makepath=True)
    [change] = admin.delete_offsets(fresh_group).changes
    assert (change.old, change.new) == ("unreadable b'seven'", None)
    assert in_zookeeper(embedded_cluster, fresh_group, topic) == {}


def test_offsets_are_deleted_beside_members_that_do_not_read_the_topic(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    store_in_zookeeper(embedded_cluster, fresh_group, "left", {0: 1})
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, fresh_group, consumer_id="ann")
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        for chosen in (topic, None):
            with pytest.raises(GroupHasMembers, match=f"{fresh_group}_ann subscribes to {topic!r}"):
                admin.delete_offsets(fresh_group, chosen)
        admin.delete_offsets(fresh_group, "left")
        assert in_zookeeper(embedded_cluster, fresh_group, "left") == {}


# -- export and import -------------------------------------------------------------------------------------------------


def test_what_is_exported_from_both_stores_is_imported_into_both(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 2, 1: 3})
    root = f"/consumers/{fresh_group}/offsets/{topic}"
    done = command("offsets", "export", fresh_group)
    assert done.stdout == f"{root}/0:1\n{root}/1:3\n\n# kafka {root}/0:2\n# kafka only {root}/1\n"
    assert done.stderr.splitlines() == [
        "Exported 3 offsets of 1 group: 1 from ZooKeeper, 2 from Kafka",
        f"note: group {fresh_group!r}: the offset of {topic}-0 in ZooKeeper differs from Kafka's",
    ]
    assert command("offsets", "export", fresh_group, "--store", "kafka").stdout == (
        f"{root}/0:2\n{root}/1:3\n\n# store kafka\n"
    )
    one = command("offsets", "export", fresh_group, "--store", "zookeeper").stdout
    assert one == f"{root}/0:1\n\n# store zookeeper\n"
    rows = json.loads(command("offsets", "export", fresh_group, "--json").stdout)["offsets"]
    found = [(row["partition"], row["offset"], row["store"]) for row in rows]
    assert found == [(0, 1, "zookeeper"), (0, 2, "kafka"), (1, 3, "kafka")]
    assert command("offsets", "import", "--input-file", "-", stdin=done.stdout).exit_code == 0
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 1}, {0: 2, 1: 3})
    refused = command("offsets", "import", "--input-file", "-", stdin=f"{root}/0:5\n")
    assert refused.exit_code == 1
    assert f"the stores of group {fresh_group!r} differ ({topic}-0: 1 in ZooKeeper, 2 in Kafka)" in refused.stderr
    assert command("offsets", "import", "--input-file", "-", stdin=one.replace(":1", ":4")).exit_code == 0
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 4}, {0: 2, 1: 3})


@pytest.mark.parametrize(
    ("zookeeper", "kafka"),
    [({0: 3}, {0: 1}), ({}, {0: 4}), ({0: 4}, {0: 4}), ({1: 2}, {0: 4})],
    ids=["stores differ", "Kafka alone", "stores agree", "each store has another"],
)
def test_a_deleted_group_is_restored_from_its_export_into_the_stores_in_which_it_was(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str, zookeeper: dict[int, int],
    kafka: dict[int, int],
) -> None:  # fmt: skip
    store_in_zookeeper(embedded_cluster, fresh_group, topic, zookeeper)
    store_in_kafka(embedded_cluster, fresh_group, topic, kafka)
    exported = command("offsets", "export", fresh_group).stdout
    assert command("groups", "delete", fresh_group).exit_code == 0
    assert stores(embedded_cluster, fresh_group, topic) == ({}, {})
    done = command("offsets", "import", "--input-file", "-", stdin=exported)
    assert done.exit_code == 0
    assert f"group {fresh_group} is new" in done.stderr
    assert stores(embedded_cluster, fresh_group, topic) == (zookeeper, kafka)


def test_an_import_leaves_an_offset_in_zookeeper_of_a_line_that_is_kafkas_alone_and_says_so(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    exported = command("offsets", "export", fresh_group).stdout
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 9})
    done = command("offsets", "import", "--input-file", "-", stdin=exported.replace(":4", ":5"))
    assert "ZooKeeper has offsets of 1 partition that were only set in Kafka" in done.stderr
    assert "is new" not in done.stderr
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 9}, {0: 5})


def test_a_group_that_no_list_shows_is_noted(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    [note] = admin.set_offsets(fresh_group, topic, 1, store="kafka").notes
    assert note.startswith(f"group {fresh_group!r} has no node in ZooKeeper: until a member joins, lists")
    admin.set_offsets(fresh_group, topic, 1, store="zookeeper")
    assert admin.set_offsets(fresh_group, topic, 2, store="kafka").notes == ()
    [note] = admin.delete_groups(fresh_group, store="zookeeper").notes
    assert note.startswith("if the groups have offsets in Kafka, these stay")


def test_a_group_with_offsets_in_kafka_is_not_new_in_zookeeper(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 4})
    assert admin.set_offsets(fresh_group, topic, 1, store="zookeeper").new_groups == ()


def test_a_partition_with_leading_zeros_is_not_imported_and_an_export_says_so(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    root = f"/consumers/{fresh_group}/offsets/{topic}"
    refused = command("offsets", "import", "--input-file", "-", "--force", stdin=f"{root}/00:1\n")
    assert refused.exit_code == 1
    assert "the partition '00' is neither a number from 0 to 999999999 without leading zeros, nor a" in refused.stderr
    embedded_cluster.client.create(f"{root}/00", b"1", makepath=True)
    exported = command("offsets", "export", fresh_group)
    assert exported.exit_code == 0
    assert f"note: an import refuses '{root}/00:1' (the partition '00' is neither a number" in exported.stderr
    rows = json.loads(command("offsets", "get", fresh_group, "--json").stdout)["partitions"]
    strange = [row for row in rows if row.get("partition_node") == "00"]
    assert [(row["partition"], row["problems"]) for row in strange] == [(None, ["the partition does not exist"])]


@pytest.mark.parametrize("store", ["zookeeper", "kafka", "both"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_import_of_what_no_log_has_is_refused_before_anything_is_written(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, store: str, dry_run: bool
) -> None:
    root = f"/consumers/{fresh_group}/offsets"
    for bad in (f"{topic}/77:1", "nosuch/0:1", f"{topic}/1:99"):
        with pytest.raises(OffsetsNotSet, match="1 offset cannot be set") as refused:
            admin.import_offsets(f"{root}/{topic}/0:1\n{root}/{bad}\n", store=store, dry_run=dry_run)
        assert "--force" in refused.value.remedy
    assert stores(embedded_cluster, fresh_group, topic) == ({}, {})
    admin.import_offsets(f"{root}/nosuch/0:1\n{root}/{topic}/1:99\n", store="zookeeper", force=True)
    assert in_zookeeper(embedded_cluster, fresh_group, topic) == {1: 99}


def test_a_group_with_offsets_in_kafka_alone_is_exported_among_all_and_imported_there(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    store_in_kafka(embedded_cluster, fresh_group, topic, {1: 3})
    lines = [line for line in admin.export_offsets().lines if line.group == fresh_group]
    assert [(line.partition, line.offset, line.store) for line in lines] == [("1", 3, "kafka")]
    admin.import_offsets(f"/consumers/{fresh_group}/offsets/{topic}/1:4\n")
    assert stores(embedded_cluster, fresh_group, topic) == ({}, {1: 4})


@pytest.mark.usefixtures("soon_given_up")
def test_an_export_names_the_groups_whose_offsets_in_kafka_are_not_known(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    store_in_kafka(embedded_cluster, fresh_group, topic, {1: 3})
    embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
    done = command("offsets", "export", fresh_group)
    assert done.exit_code == 1
    assert f"left out: offsets in Kafka of group {fresh_group!r}: " in done.stderr
    assert command("offsets", "export", fresh_group, "--store", "zookeeper").exit_code == 0


def test_a_partition_of_kafka_07_is_not_stored_in_kafka(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 1})
    with pytest.raises(OffsetsNotSet, match=r"partition '0-1' of .* cannot be stored in Kafka"):
        admin.import_offsets(f"/consumers/{fresh_group}/offsets/{topic}/0-1:4\n", force=True)


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_group_without_members_is_deleted_in_both_stores(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1, 1: 2})
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 3})
    for path in ("ids", f"owners/{topic}"):
        embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/{path}")
    embedded_cluster.client.create(f"/consumers/{fresh_group}/owners/{topic}/0", b"gone-0")  # persistent: nobody has it
    tried = command("groups", "delete", fresh_group, "--dry-run")
    assert tried.stdout == (f"{fresh_group} would be deleted: 9 nodes of ZooKeeper with 2 offsets, 1 offset in Kafka\n")
    assert stores(embedded_cluster, fresh_group, topic) == ({0: 1, 1: 2}, {0: 3})
    done = command("groups", "delete", fresh_group, "--json")
    assert json.loads(done.stdout) == {
        "groups": [{"group": fresh_group, "nodes": 9, "offset_count_in_zookeeper": 2, "offset_count_in_kafka": 1,
                    "expires": True}],
        "deleted": True,
        "notes": [f"group {fresh_group!r}: /consumers/{fresh_group}/owners/{topic}/0 belongs to no session and does "
                  "not prevent the deletion", note_of_kept_offsets(fresh_group)],
    }  # fmt: skip
    assert embedded_cluster.client.exists(f"/consumers/{fresh_group}") is None
    assert in_kafka(embedded_cluster, fresh_group, topic) == {}
    again = command("groups", "delete", fresh_group)
    assert (again.exit_code, "does not exist in ZooKeeper" in again.stderr) == (1, True)


def test_a_group_that_exists_in_kafka_alone_is_deleted(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 3})
    assert admin.delete_groups(fresh_group).groups == (DeletedGroup(fresh_group, 0, 0, 1, expires=True),)
    with pytest.raises(NotFound):
        admin.delete_groups(fresh_group)


def test_no_group_is_deleted_if_one_of_them_has_members(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, f"{fresh_group}-idle", topic, {0: 1})
    config = ConsumerConfig(embedded_cluster.zookeeper_connect, fresh_group, consumer_id="ann")
    with ConsumerConnector(config) as connector:
        connector.create_message_streams({topic: 1})
        with pytest.raises(GroupHasMembers, match=rf"1 consumer is in group .* \({fresh_group}_ann\)"):
            admin.delete_groups(f"{fresh_group}-idle", fresh_group)
    assert in_zookeeper(embedded_cluster, f"{fresh_group}-idle", topic) == {0: 1}
    admin.delete_groups(f"{fresh_group}-idle", fresh_group)
    assert embedded_cluster.client.exists(f"/consumers/{fresh_group}") is None


def joins(cluster: Cluster, group: str) -> None:
    cluster.client.create(f"/consumers/{group}/ids/{group}_late", b"{}", makepath=True)


def test_a_member_that_joins_meanwhile_keeps_the_offsets_in_kafka(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [f"{fresh_group}-{number}" for number in range(2)]
    for group in groups:
        embedded_cluster.client.ensure_path(f"/consumers/{group}/ids")
        store_in_zookeeper(embedded_cluster, group, topic, {0: 1})
        store_in_kafka(embedded_cluster, group, topic, {0: 7})
    real = OffsetsInKafka.store

    def store_late(self: OffsetsInKafka, group: str, offsets: object) -> object:
        joins(embedded_cluster, groups[1])  # after all groups were checked, while the first one is deleted
        return real(self, group, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(OffsetsInKafka, "store", store_late)
    with pytest.raises(GroupNotDeleted) as refused:
        admin.delete_groups(*groups)
    assert refused.value.sentence == (
        f"group {groups[1]!r} is not deleted: /consumers/{groups[1]}/ids was written by another client in the "
        "meantime; "
        f"deleted were 0 of 5 nodes in ZooKeeper, and nothing in Kafka; 1 group was deleted before ({groups[0]!r})"
    )
    assert embedded_cluster.client.exists(f"/consumers/{groups[0]}") is None
    assert stores(embedded_cluster, groups[1], topic) == ({0: 1}, {0: 7})


def test_a_member_that_joins_after_the_offsets_in_kafka_are_gone_is_reported_with_them(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 7})
    real = OffsetsInKafka.store

    def store_late(self: OffsetsInKafka, group: str, offsets: object) -> object:
        joins(embedded_cluster, group)
        return real(self, group, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(OffsetsInKafka, "store", store_late)
    with pytest.raises(GroupNotDeleted) as refused:
        admin.delete_groups(fresh_group)
    assert refused.value.sentence.endswith("deleted were 1 of 2 nodes in ZooKeeper, and 1 offset in Kafka")
    assert embedded_cluster.client.exists(f"/consumers/{fresh_group}/ids/{fresh_group}_late") is not None


def test_of_a_group_that_a_member_joins_no_offset_in_zookeeper_is_deleted(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    store_in_zookeeper(embedded_cluster, fresh_group, topic, dict.fromkeys(range(100), 1))
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 7})
    real = OffsetsInKafka.store

    def store_late(self: OffsetsInKafka, group: str, offsets: object) -> object:
        joins(embedded_cluster, group)
        return real(self, group, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(OffsetsInKafka, "store", store_late)
    with pytest.raises(GroupNotDeleted) as refused:
        admin.delete_groups(fresh_group)
    assert refused.value.sentence.endswith("deleted were 1 of 104 nodes in ZooKeeper, and 1 offset in Kafka")
    assert len(in_zookeeper(embedded_cluster, fresh_group, topic)) == 100


def test_a_node_that_somebody_else_has_deleted_meanwhile_does_not_keep_the_group(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, dict.fromkeys(range(450), 1))
    real = group_deletion._check_unused

    def check_late(group: str, tree: object) -> None:
        real(group, tree)  # type: ignore[arg-type]
        embedded_cluster.client.delete(f"/consumers/{group}/offsets/{topic}/40")

    monkeypatch.setattr(group_deletion, "_check_unused", check_late)
    [deleted] = admin.delete_groups(fresh_group).groups
    assert (deleted.nodes, deleted.offsets_in_zookeeper) == (453, 450)
    assert embedded_cluster.client.exists(f"/consumers/{fresh_group}") is None


@pytest.mark.parametrize("version", ["zk-3.3.6", "zk-3.4.14"])
def test_an_error_says_how_many_nodes_of_a_group_are_deleted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper 3.3 has no transactions: those before the one that somebody has written are gone."""
    with ZooKeeperServer(version=version) as server, Admin(server.connect) as admin:
        client = KazooClient(server.connect)
        client.start()
        for number in range(10):
            client.create(f"/consumers/g/offsets/t/{number}", b"1", makepath=True)
        real = group_deletion._check_unused

        def check_late(group: str, tree: object) -> None:
            real(group, tree)  # type: ignore[arg-type]
            client.set("/consumers/g/offsets/t/5", b"2")

        monkeypatch.setattr(group_deletion, "_check_unused", check_late)
        with pytest.raises(GroupNotDeleted, match="/consumers/g/offsets/t/5 was written by another client") as refused:
            admin.delete_groups("g")
        left = len(client.get_children("/consumers/g/offsets/t"))
        assert left == (6 if version == "zk-3.3.6" else 10)
        assert f"deleted were {10 - left} of 13 nodes in ZooKeeper" in refused.value.sentence
        client.stop()
        client.close()


@pytest.mark.usefixtures("soon_given_up")
def test_an_import_reads_the_offsets_of_all_groups_in_kafka_again_before_the_first_one_is_written(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [f"{fresh_group}-{number}" for number in range(3)]
    for group in groups:
        store_in_kafka(embedded_cluster, group, topic, {0: 1})
    text = "".join(f"/consumers/{group}/offsets/{topic}/0:5\n" for group in groups)
    real = offset_changes._write_kafka

    def write_late(in_store: OffsetsInKafka, changes: object) -> None:
        store_in_kafka(embedded_cluster, groups[2], topic, {0: 2})  # between plan and write
        real(in_store, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(offset_changes, "_write_kafka", write_late)
    with pytest.raises(OffsetsNotSet) as refused:
        admin.import_offsets(text)
    assert refused.value.sentence == (
        f"the offset of {topic}-0 of group {groups[2]!r} in Kafka is not written: another client has changed it "
        "in the meantime: it was 1, it is 2; 0 of 3 offsets in Kafka were written, and none in ZooKeeper"
    )
    assert [in_kafka(embedded_cluster, group, topic) for group in groups] == [{0: 1}, {0: 1}, {0: 2}]
    monkeypatch.setattr(offset_changes, "_write_kafka", real)
    unanswered = Fault.error(14, "offset_fetch", topic, 0).only(client_id="zkconsumer-admin")  # not to this test
    embedded_cluster.faults.add(unanswered, times=None)
    with pytest.raises(OffsetsNotSet):
        admin.import_offsets(text)
    assert [in_kafka(embedded_cluster, group, topic) for group in groups] == [{0: 1}, {0: 1}, {0: 2}]


def test_an_offset_in_kafka_that_has_changed_is_not_deleted_with_its_group(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_cluster.client.ensure_path(f"/consumers/{fresh_group}/ids")
    store_in_kafka(embedded_cluster, fresh_group, topic, {0: 7})
    real = OffsetsInKafka.fetch

    def fetch_late(self: OffsetsInKafka, *arguments: object) -> object:
        store_in_kafka(embedded_cluster, fresh_group, topic, {0: 99})
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OffsetsInKafka, "fetch", fetch_late)
    with pytest.raises(GroupNotDeleted) as refused:
        admin.delete_groups(fresh_group)
    assert refused.value.sentence == (
        f"group {fresh_group!r} is not deleted: its offset of {topic}-0 in Kafka was changed by another client in "
        "the meantime: it was 7, it is 99; no offset in Kafka is deleted, and 1 of 2 nodes in ZooKeeper"
    )
    assert in_kafka(embedded_cluster, fresh_group, topic) == {0: 99}


def test_an_owner_node_of_no_session_prevents_no_deletion(
    embedded_cluster: Cluster, command: Callable[..., Result], topic: str, fresh_group: str
) -> None:
    store_in_zookeeper(embedded_cluster, fresh_group, topic, {0: 1})
    path = f"/consumers/{fresh_group}/owners/{topic}/0"
    embedded_cluster.client.create(path, b"gone-0", makepath=True)
    said = f"note: group {fresh_group!r}: {path} belongs to no session and does not prevent the deletion"
    for call in (["offsets", "delete", fresh_group], ["groups", "delete", fresh_group]):
        done = command(*call)
        assert done.exit_code == 0, done.stderr
        assert said in done.stderr.splitlines()


def test_a_persistent_registration_counts_as_a_member_and_is_named(
    embedded_cluster: Cluster, admin: Admin, fresh_group: str
) -> None:
    path = f"/consumers/{fresh_group}/ids/{fresh_group}_old"
    embedded_cluster.client.create(path, b"{}", makepath=True)
    with pytest.raises(GroupHasMembers) as refused:
        admin.delete_groups(fresh_group)
    assert refused.value.remedy.endswith(f"if no such consumer runs, delete {path}")


def test_a_claim_of_a_session_that_lives_keeps_the_group(
    embedded_cluster: Cluster, admin: Admin, topic: str, fresh_group: str
) -> None:
    client = KazooClient(embedded_cluster.zookeeper_connect)
    client.start()
    try:
        client.create(f"/consumers/{fresh_group}/owners/{topic}/0", b"x-0", ephemeral=True, makepath=True)
        with pytest.raises(GroupHasMembers, match=f"/consumers/{fresh_group}/owners/{topic}/0 is held by session 0x"):
            admin.delete_groups(fresh_group)
    finally:
        client.stop()
        client.close()
    assert admin.delete_groups(fresh_group).deleted


def test_groups_is_still_a_command_of_its_own(command: Callable[..., Result]) -> None:
    assert command("groups", "list").stdout == command("groups").stdout
    assert command("groups", "--active", "--json").exit_code == 0
    mistyped = command("groups", "delte", "g")
    assert mistyped.exit_code == 2
    assert "No such command 'delte'" in mistyped.stderr
