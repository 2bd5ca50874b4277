"""In which store an owner keeps its offset, as claims and offsets show it, and what `verify` says about the stores."""

from __future__ import annotations

import dataclasses

import pytest

from zkconsumer.admin.group_report import GroupNodes, report
from zkconsumer.admin.offset_findings import offset_findings
from zkconsumer.admin.storage_findings import storage_findings

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
    assert report(nodes).partitions[0].storage == storage
    assert dataclasses.replace(nodes, claim_zxids={}).storage_of(P0) is None
    assert dataclasses.replace(nodes, kafka_unknown="no answer").storage_of(P0) is None


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
    nodes = dataclasses.replace(
        NODES, owners=owners, offsets={P0: b"7"}, offset_zxids={P0: 101}, kafka_offsets={P1: 9}
    )
    assert list(storage_findings(nodes)) == []


@pytest.mark.parametrize(("written_at", "faults"), [(101, ["zookeeper"]), (99, ["zookeeper", "kafka"])])
def test_an_offset_outside_the_log_is_a_fault_unless_the_owner_works_in_the_other_store(
    written_at: int, faults: list[str]
) -> None:
    nodes = dataclasses.replace(
        NODES, offsets={P0: b"50"}, offset_zxids={P0: written_at}, kafka_offsets={P0: 40}
    )
    found = list(offset_findings(nodes, {P0: (0, 10)}))
    assert [finding.kind for finding in found] == ["offset-beyond-log"] * 2
    stores = {"zookeeper": "in ZooKeeper 50", "kafka": "in Kafka 40"}
    for store, text in stores.items():
        [finding] = [each for each in found if text in each.sentence]
        assert finding.fault is (store in faults)
        assert f"--store {store}" in finding.remedy
