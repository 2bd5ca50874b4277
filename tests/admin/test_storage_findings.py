"""In which store an owner keeps its offset, as claims and offsets show it, and what `verify` says about the stores."""

from __future__ import annotations

import dataclasses

import pytest

from zkconsumer.admin.groups.group_report import report
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.verify.offset_findings import offset_findings, storage_findings

P0 = ("clicks", "0")
P1 = ("clicks", "1")
NODES = GroupNodes(
    group="g",
    registrations={},
    owners={P0: (b"g_ann-0", 1), P1: (b"g_bob-0", 1)},
    offsets={},
    known_topics=("clicks",),
    topics={"clicks": b'{"version":1,"partitions":{"0":[0],"1":[0]}}'},
    claim_zxids={P0: 100, P1: 100},
)


@pytest.mark.parametrize(
    ("zookeeper", "written_at", "kafka", "storage"),
    [
        (None, 0, None, None),
        (7, 101, None, "zookeeper"),
        (7, 101, 5, "zookeeper"),
        (7, 101, 7, None),  # dual commit, or nothing has moved
        (7, 101, 9, None),  # dual commit on its way, or an operator has set ZooKeeper's
        (7, 99, None, None),  # the owner has not committed yet
        (7, 99, 5, None),
        (7, 99, 9, "kafka"),
        (None, 0, 9, "kafka"),
        (b"seven", 101, 9, "kafka"),
    ],
)
def test_the_store_of_an_owner(
    zookeeper: int | bytes | None, written_at: int, kafka: int | None, storage: str | None
) -> None:
    data = zookeeper if isinstance(zookeeper, bytes) else str(zookeeper).encode()
    nodes = dataclasses.replace(
        NODES,
        offsets={} if zookeeper is None else {P0: data},
        offset_zxids={} if zookeeper is None else {P0: written_at},
        kafka_offsets={} if kafka is None else {P0: kafka},
    )
    assert nodes.storage_of(P0) == storage
    row = report(nodes).partitions[0]
    counts = {"zookeeper": row.offset_in_zookeeper, "kafka": row.offset_in_kafka, None: max(
        (each for each in (row.offset_in_zookeeper, row.offset_in_kafka) if each is not None), default=None
    )}[storage]  # fmt: skip
    assert (row.storage, row.offset) == (storage, counts)
    assert dataclasses.replace(nodes, claim_zxids={}).storage_of(P0) is None
    assert dataclasses.replace(nodes, kafka_unknown="no answer").storage_of(P0) is None


@pytest.mark.parametrize(
    ("claimed", "written_at", "answered", "offset"),
    [
        (True, 101, False, 7),  # its owner has written it, so it is no leftover
        (True, 99, False, None),
        (False, 101, False, None),
        (False, 101, True, 7),
    ],
)
def test_while_kafka_does_not_answer_only_what_owners_wrote_in_zookeeper_counts(
    claimed: bool, written_at: int, answered: bool, offset: int | None
) -> None:
    nodes = dataclasses.replace(
        NODES, owners={}, offsets={P0: b"7"}, offset_zxids={P0: written_at}, claim_zxids={P0: 100} if claimed else {},
        kafka_unknown="no answer", kafka_answered=frozenset({P0} if answered else ()), log_ends={P0: 9, P1: 9},
    )  # fmt: skip
    found = report(nodes)
    [problem] = found.problems
    assert problem.startswith("the offsets in Kafka cannot be read: no answer; ")
    assert (found.partitions[0].offset, found.partitions[0].offset_in_zookeeper) == (offset, 7)
    assert (found.lag, found.lag_unknown) == ((2, 1) if offset else (None, 2))


def test_topics_that_had_offsets_in_kafka_stay_while_it_does_not_answer() -> None:
    nodes = dataclasses.replace(NODES, owners={}, kafka_unknown="no answer", kafka_topics=frozenset({"clicks"}))
    assert report(nodes).lag_unknown == 2


def test_members_that_store_elsewhere_are_a_fault_that_may_pass() -> None:
    nodes = dataclasses.replace(
        NODES, offsets={P0: b"7", P1: b"3"}, offset_zxids={P0: 101, P1: 99}, kafka_offsets={P0: 7 - 1, P1: 9}
    )
    kinds = {finding.kind: finding for finding in storage_findings(nodes)}
    assert kinds.keys() == {"mixed-storage", "offsets-differ"}
    assert (kinds["mixed-storage"].fault, kinds["mixed-storage"].passing) == (True, True)
    assert "g_ann in ZooKeeper (as of clicks-0), g_bob in Kafka (as of clicks-1)" in kinds["mixed-storage"].sentence
    assert "offsets of 2 partitions differ" in kinds["offsets-differ"].sentence


def test_one_member_alone_is_not_mixed() -> None:
    owners = {P0: (b"g_ann-0", 1), P1: (b"g_ann-0", 1)}
    nodes = dataclasses.replace(NODES, owners=owners, offsets={P0: b"7"}, offset_zxids={P0: 101}, kafka_offsets={P1: 9})
    assert list(storage_findings(nodes)) == []


@pytest.mark.parametrize(("written_at", "faults"), [(101, ["zookeeper"]), (99, ["zookeeper", "kafka"])])
def test_an_offset_outside_the_log_is_a_fault_unless_the_owner_works_in_the_other_store(
    written_at: int, faults: list[str]
) -> None:
    nodes = dataclasses.replace(NODES, offsets={P0: b"50"}, offset_zxids={P0: written_at}, kafka_offsets={P0: 40})
    found = list(offset_findings(nodes, {P0: (0, 10)}))
    assert [finding.kind for finding in found] == ["offset-beyond-log"] * 2
    stores = {"zookeeper": "in ZooKeeper 50", "kafka": "in Kafka 40"}
    for store, text in stores.items():
        [finding] = [each for each in found if text in each.sentence]
        assert finding.fault is (store in faults)
        assert f"--store {store}" in finding.remedy


@pytest.mark.parametrize(
    ("data", "log", "kind"),
    [(b"50", (0, 10), "offset-beyond-log"), (b"5", (8, 10), "offset-before-log"), (b"x", (0, 10), "unreadable-offset")],
)
def test_an_offset_in_zookeeper_that_may_be_a_leftover_is_no_fault_while_kafka_is_unknown(
    data: bytes, log: tuple[int, int], kind: str
) -> None:
    nodes = dataclasses.replace(NODES, offsets={P0: data}, offset_zxids={P0: 99})
    [finding] = offset_findings(nodes, {P0: log})
    assert (finding.kind, finding.fault) == (kind, True)
    assert "is not known" not in finding.sentence
    unknown = dataclasses.replace(nodes, kafka_unknown="no answer")
    [finding] = offset_findings(unknown, {P0: log})
    assert (finding.kind, finding.fault) == (kind, False)
    assert finding.sentence.endswith("; it is not known whether the group still uses its offset in ZooKeeper")
    answered = dataclasses.replace(unknown, kafka_answered=frozenset({P0}))
    by_owner = dataclasses.replace(unknown, offset_zxids={P0: 101})
    for known in (answered, by_owner):
        [finding] = offset_findings(known, {P0: log})
        assert (finding.kind, finding.fault) == (kind, True)


def test_a_log_without_a_leader_is_a_fault_whichever_offset_counts() -> None:
    nodes = dataclasses.replace(NODES, offsets={P0: b"5"}, offset_zxids={P0: 99}, kafka_unknown="no answer")
    [finding] = offset_findings(nodes, {P0: "no broker leads it"})
    assert (finding.kind, finding.fault) == ("unknown-log", True)
