"""`Admin` on Kafka 0.7: embedded brokers, and real ones where their jar is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_07 import Both, produce_07, send_set

from simpleconsumer.dialect import KAFKA07
from zkconsumer import ConsumerConfig, ConsumerConnector, ConsumerTimeout
from zkconsumer.admin import Admin, NotFound
from zkconsumer.admin.values import ClaimNotReleased, OffsetsNotSet, TopicRefused
from zkconsumer.errors import ReadFailed
from zkconsumer.testing.waiting import wait_until
from zkconsumer.topic_reader.topic_reader import read_topic

pytestmark = pytest.mark.real

STARTS = [0, 15, 31]
END = 46


@pytest.fixture
def topic(cluster: Both, fresh_topic: Callable[[], str]) -> str:
    """A topic with three messages in 0-1 and one in 1-0."""
    name = fresh_topic()
    cluster.create_topic(name)
    assert produce_07(cluster.port(0), name, 1, [b"first", b"second", b"third"]) == END
    assert produce_07(cluster.port(1), name, 0, [b"elsewhere"]) == 19
    return name


def stored(admin: Admin, group: str) -> dict[int | str, int | None]:
    return {row.partition: row.offset for row in admin.offsets(group).partitions if row.offset is not None}


# -- topics, groups and lag ------------------------------------------------------------------------------------------


def test_topics(admin: Admin, topic: str) -> None:
    found = admin.topics(topic)
    assert [(row.partition, row.leader, row.earliest, row.latest) for row in found.partitions] == [
        ("0-0", 0, 0, 0), ("0-1", 0, 0, END), ("1-0", 1, 0, 19), ("1-1", 1, 0, 0),
    ]  # fmt: skip
    assert {(row.replicas, row.isr) for row in found.partitions} == {((), None)}
    assert found.problems == ()


def test_a_group_of_ours(cluster: Both, admin: Admin, topic: str, fresh_group: str) -> None:
    config = ConsumerConfig(zookeeper_connect=cluster.zookeeper_connect, group_id=fresh_group, consumer_timeout_ms=2000,
                            auto_offset_reset="smallest", auto_commit_enable=False)  # fmt: skip
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        values = []
        with pytest.raises(ConsumerTimeout):
            values += [message.value for message in stream]
        connector.commit_offsets()
        described = admin.describe(fresh_group)
        verified = admin.verify(fresh_group, patience_s=0)
        [lag] = admin.lag(fresh_group).groups
        [listed] = [row for row in admin.groups().groups if row.group == fresh_group]
        with pytest.raises(ClaimNotReleased, match="is registered"):
            admin.release(fresh_group, topic, "0-1")
        admin.trigger_rebalance(fresh_group)
    assert [(row.partition, row.offset, row.lag) for row in described.partitions] == [
        ("0-0", 0, 0), ("0-1", END, 0), ("1-0", 19, 0), ("1-1", 0, 0),
    ]  # fmt: skip
    assert (described.lag_unit, described.problems) == ("bytes", ())
    assert (verified.members, verified.partitions, verified.strategy, verified.findings) == (1, 4, "range", ())
    assert (lag.member_count, lag.owned, lag.unowned, lag.lag, lag.lag_unknown) == (1, 4, 0, 0, 0)
    assert (listed.members, listed.owned, listed.topics) == (1, 4, (topic,))
    produce_07(cluster.port(0), topic, 1, [b"fourth"])
    assert admin.lag(fresh_group).groups[0].lag == 16
    assert admin.delete_groups(fresh_group).groups[0].group == fresh_group
    with pytest.raises(NotFound):
        admin.describe(fresh_group)


def test_a_claim_that_is_left_behind_is_found_and_released(
    cluster: Both, admin: Admin, topic: str, fresh_group: str
) -> None:
    path = f"/consumers/{fresh_group}/owners/{topic}/0-1"
    cluster.client.create(path, b"gone-0", makepath=True)
    assert "persistent-owner" in [each.kind for each in admin.verify(fresh_group, patience_s=0).faults]
    assert admin.release(fresh_group, topic, "0-1").is_released
    assert cluster.client.exists(path) is None
    with pytest.raises(
        NotFound, match="5-0 now, because broker 5 is not registered with it; it has 0-0, 0-1, 1-0, 1-1"
    ):
        admin.release(fresh_group, topic, "5-0")


# -- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("earliest", {"0-0": 0, "0-1": 0, "1-0": 0, "1-1": 0}), ("latest", {"0-0": 0, "0-1": END, "1-0": 19, "1-1": 0}),
        ("2014-03-01T12:00:00Z", {"0-0": 0, "0-1": 0, "1-0": 0, "1-1": 0}),
        ("2100-01-01T00:00:00Z", {"0-0": 0, "0-1": END, "1-0": 19, "1-1": 0}),
    ],
)  # fmt: skip
def test_offsets_are_set_by_words_and_times(
    admin: Admin, topic: str, fresh_group: str, target: str, expected: dict[str, int]
) -> None:
    assert admin.set_offsets(fresh_group, topic, target).notes == ()
    assert stored(admin, fresh_group) == expected


@pytest.mark.parametrize("position", [*STARTS, END])
def test_a_position_where_an_entry_starts_is_stored_as_it_is(
    admin: Admin, topic: str, fresh_group: str, position: int
) -> None:
    assert admin.set_offsets(fresh_group, topic, position, ["0-1"]).notes == ()
    assert stored(admin, fresh_group) == {"0-1": position}


def test_a_position_within_an_entry_is_moved_to_its_start(admin: Admin, topic: str, fresh_group: str) -> None:
    found = admin.set_offsets(fresh_group, topic, 20, ["0-1"])
    assert found.notes == (f"{topic}-0-1: position 20 is inside an entry; set to the entry's start, 15",)
    assert stored(admin, fresh_group) == {"0-1": 15}
    assert admin.set_offsets(fresh_group, topic, 20, ["0-1"], force=True).notes == ()
    assert stored(admin, fresh_group) == {"0-1": 20}


def test_a_position_within_a_compressed_entry_is_moved_to_its_start(
    cluster: Both, admin: Admin, topic: str, fresh_group: str
) -> None:
    data = bytes(KAFKA07.encode_messages([b"a", b"b", b"c"], "gzip", None, None))
    send_set(cluster, topic, "0-1", data)
    admin.set_offsets(fresh_group, topic, END + 10, ["0-1"])
    assert stored(admin, fresh_group) == {"0-1": END}
    admin.set_offsets(fresh_group, topic, END + len(data), ["0-1"])
    assert stored(admin, fresh_group) == {"0-1": END + len(data)}


@pytest.mark.parametrize(("by", "expected"), [(-1, 31), (-15, 31), (-16, 15), (-1000, 0), (5, END)])
def test_a_shift_counts_bytes_and_ends_at_the_start_of_an_entry(
    admin: Admin, topic: str, fresh_group: str, by: int, expected: int
) -> None:
    admin.set_offsets(fresh_group, topic, "latest", ["0-1"])
    admin.shift_offsets(fresh_group, topic, by, ["0-1"])
    assert stored(admin, fresh_group) == {"0-1": expected}


def test_what_cannot_be_set_is_refused(admin: Admin, topic: str, fresh_group: str) -> None:
    with pytest.raises(OffsetsNotSet, match=f"47 cannot be set for {topic}-0-1: its log has 0 to 46"):
        admin.set_offsets(fresh_group, topic, END + 1, ["0-1"])
    with pytest.raises(NotFound, match="has no partition 1; it has 0-0, 0-1, 1-0, 1-1"):
        admin.set_offsets(fresh_group, topic, 0, [1])
    with pytest.raises(OffsetsNotSet, match="where partitions are numbers"):
        admin.set_offsets(fresh_group, topic, "earliest", store="kafka")


def test_offsets_are_exported_imported_and_deleted(admin: Admin, topic: str, fresh_group: str) -> None:
    admin.set_offsets(fresh_group, topic, "latest")
    text = admin.export_offsets(fresh_group).to_text()
    assert text.splitlines()[1] == f"/consumers/{fresh_group}/offsets/{topic}/0-1:{END}"
    admin.delete_offsets(fresh_group, topic, ["0-1"])
    assert stored(admin, fresh_group) == {"0-0": 0, "1-0": 19, "1-1": 0}
    assert admin.import_offsets(text).notes == ()
    assert stored(admin, fresh_group)["0-1"] == END
    moved = admin.import_offsets(text.replace(f":{END}", ":33"))
    assert moved.notes == (f"{topic}-0-1: position 33 is inside an entry; set to the entry's start, 31",)
    assert stored(admin, fresh_group)["0-1"] == 31
    with pytest.raises(OffsetsNotSet, match="its log has 0 to 46"):
        admin.import_offsets(text.replace(f":{END}", ":99"))
    with pytest.raises(OffsetsNotSet, match="the partition does not exist"):
        admin.import_offsets(text.replace("/0-1:", "/0-9:"))


# -- what a broker that is gone leaves ---------------------------------------------------------------------------------


def test_partitions_of_a_broker_that_is_gone_are_named(
    cluster: Both, admin: Admin, topic: str, fresh_group: str
) -> None:
    admin.set_offsets(fresh_group, topic, "latest")
    cluster.stop(1)
    try:
        wait_until(lambda: len(admin.topics(topic).partitions) == 2, 20, "the end of the broker's registration")
        gone = "broker 1 is not registered with the topic; the partition returns with it, at the same position"
        rows = {row.partition: row for row in admin.describe(fresh_group).partitions}
        assert rows["1-0"].problems == (gone,)
        assert rows["0-1"].problems == ()
        assert [each.kind for each in admin.verify(fresh_group, patience_s=0, least_members=0).findings] == [
            "stale-offset", "stale-offset",
        ]  # fmt: skip
        with pytest.raises(
            NotFound, match="no partition 1-0 now, because broker 1 is not registered with it; it has 0-0"
        ):
            admin.set_offsets(fresh_group, topic, "earliest", ["1-0"])
        with pytest.raises(
            OffsetsNotSet, match="does not exist, because broker 1 is not registered with it; the topic has"
        ):
            admin.import_offsets(f"/consumers/{fresh_group}/offsets/{topic}/1-0:0\n")
        left_out = (
            f"left out, because no registered broker has them now: {topic}-1-0, {topic}-1-1; their offsets stay",
        )
        for chosen in (topic, None):
            changed = admin.set_offsets(fresh_group, chosen, "earliest", dry_run=True)
            assert (len(changed.changes), changed.notes) == (2, left_out)
        assert admin.shift_offsets(fresh_group, topic, -1, dry_run=True).notes[0] == left_out[0]
        assert admin.set_offsets(fresh_group, topic, "earliest", ["0-0"], dry_run=True).notes == ()
    finally:
        cluster.start(1)
        wait_until(lambda: len(admin.topics(topic).partitions) == 4, 20, "the return of the broker")
    assert admin.describe(fresh_group).problems == ()


def test_a_partition_that_its_broker_does_not_have_hides_no_other(
    cluster: Both, admin: Admin, topic: str, fresh_group: str
) -> None:
    """At the question for its offsets the broker closes the connection."""
    cluster.client.set(f"/brokers/topics/{topic}/0", b"3")
    assert [(row.partition, row.latest) for row in admin.topics(topic).partitions] == [
        ("0-0", 0), ("0-1", END), ("0-2", None), ("1-0", 19), ("1-1", 0),
    ]  # fmt: skip
    [problem] = admin.topics(topic).problems
    assert problem.startswith(f"{topic}-0-2: offsets unknown: ")
    admin.set_offsets(fresh_group, topic, "latest", ["0-1"])
    assert stored(admin, fresh_group) == {"0-1": END}


def test_a_topic_whose_brokers_are_all_away_is_no_empty_one(
    cluster: Both, admin: Admin, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    name = fresh_topic()
    cluster.client.create(f"/brokers/topics/{name}")
    cluster.client.create(f"/consumers/{fresh_group}/offsets/{name}/7-0", b"5", makepath=True)
    with pytest.raises(NotFound, match=f"topic '{name}' has no partitions now: no broker that has it is registered"):
        admin.set_offsets(fresh_group, name, "earliest")
    with pytest.raises(OffsetsNotSet, match=f"no broker that has a topic of group '{fresh_group}' is registered"):
        admin.set_offsets(fresh_group, None, "earliest")
    with pytest.raises(ReadFailed, match="has no partitions now: no broker that has it is registered"):
        read_topic(cluster.zookeeper_connect, name)


# -- topics are made by messages ---------------------------------------------------------------------------------------


def test_topics_are_not_created_grown_or_deleted(cluster: Both, admin: Admin, topic: str) -> None:
    before = cluster.client.get_children("/brokers/topics")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: admin.create_topic(f"{topic}-new"), f"zkconsumer produce --topic {topic}-new"),
        (lambda: admin.create_topic(f"{topic}-new", dry_run=True), "send a message to it"),
        (lambda: admin.grow_topic(topic, 8), "topic.partition.count.map"),
        (lambda: admin.delete_topic(topic), f"delete the folders {topic}-"),
    ]
    for call, remedy in calls:
        with pytest.raises(TopicRefused, match=r"the cluster is of Kafka 0\.7") as refused:
            call()
        assert remedy in refused.value.remedy
    assert cluster.client.get_children("/brokers/topics") == before
