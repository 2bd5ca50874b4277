"""Stored positions of Kafka 0.7 at which no entry starts are named by `verify`, `describe` and `offsets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from kafka_07 import Both, entry, log_files, send_set

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import TopicPartition
from zkconsumer.admin import Admin, Finding
from zkconsumer.admin.groups.group_state import FaultIs
from zkconsumer.admin.verify.entry_faults import THOROUGH, find_entry_faults
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection

pytestmark = pytest.mark.real

PACKED = bytes(KAFKA07.encode_messages([b"%d" % n for n in range(50)], "gzip", None, None))
LARGE = entry(bytes(10_000))
LOG = entry(b"first") + PACKED + LARGE + entry(b"last")
PACKED_AT = 15
LARGE_AT = PACKED_AT + len(PACKED)
LAST_AT = LARGE_AT + len(LARGE)
END = LAST_AT + 14


@pytest.fixture
def topic(cluster: Both, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name)
    assert send_set(cluster, name, "0-1", LOG) == END
    return name


class Stored(NamedTuple):
    """What is said of a stored position."""

    findings: list[Finding]
    problems: tuple[str, ...]


@pytest.fixture
def stored(cluster: Both, admin: Admin, topic: str, fresh_group: str) -> Callable[[bytes], Stored]:
    """Stores a text as the offset of 0-1, and returns what is said of it."""
    path = f"/consumers/{fresh_group}/offsets/{topic}/0-1"

    def store(data: bytes) -> Stored:
        if cluster.client.exists(path):
            cluster.client.set(path, data)
        else:
            cluster.client.create(path, data, makepath=True)
        found = admin.verify(fresh_group, least_members=0, patience_s=0)
        described = {row.partition: row.problems for row in admin.describe(fresh_group).partitions}["0-1"]
        [row] = [row for row in admin.offsets(fresh_group, topic).partitions if row.partition == "0-1"]
        assert row.problems == described
        assert all(each.path == path for each in found.findings)
        return Stored(list(found.findings), described)

    return store


def test_starts_of_entries_and_both_ends_of_the_log_are_right(stored: Callable[[bytes], Stored]) -> None:
    for position in (0, PACKED_AT, LARGE_AT, LAST_AT, END):
        assert stored(b"%d" % position) == ([], ())


@pytest.mark.parametrize(
    ("position", "start", "end"),
    [
        (1, 0, PACKED_AT), (PACKED_AT + 1, PACKED_AT, LARGE_AT), (LARGE_AT - 1, PACKED_AT, LARGE_AT),
        (LARGE_AT + 5000, LARGE_AT, LAST_AT), (END - 1, LAST_AT, END),
    ],
)  # fmt: skip
def test_a_position_within_an_entry_is_named_with_it(
    stored: Callable[[bytes], Stored], topic: str, fresh_group: str, position: int, start: int, end: int
) -> None:
    found = stored(b"%d" % position)
    [finding] = found.findings
    assert (finding.kind, finding.fault) == ("offset-within-entry", True)
    assert finding.sentence == f"{topic}-0-1: its stored offset {position} is inside the entry from {start} to {end}"
    command = f"zkconsumer offsets set {fresh_group} --topic {topic} --partition 0-1 --force --to {start}, or "
    assert finding.remedy.startswith(command)
    [problem] = found.problems
    assert problem.startswith(f"no entry seems to start at the stored offset {position} (")
    assert f"`zkconsumer verify {fresh_group}`" in problem


def test_the_remedy_mends_it(admin: Admin, stored: Callable[[bytes], Stored], topic: str, fresh_group: str) -> None:
    assert stored(b"20").findings
    admin.set_offsets(fresh_group, topic, PACKED_AT, ["0-1"], force=True)
    assert admin.verify(fresh_group, least_members=0, patience_s=0).findings == ()


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (b"%d" % (END + 3), "offset-beyond-log", f"its stored offset {END + 3} is 3 bytes beyond the end of its log"),
        (b"x", "unreadable-offset", "its stored offset b'x' is not valid"),
        (b"-5", "unreadable-offset", "its stored offset b'-5' is not valid"),
        (b"", "unreadable-offset", "its stored offset b'' is not valid"),
    ],
)
def test_what_is_no_position_of_the_log_is_named(
    stored: Callable[[bytes], Stored], topic: str, text: bytes, kind: str, sentence: str
) -> None:
    found = stored(text)
    assert [(each.kind, each.sentence) for each in found.findings] == [(kind, f"{topic}-0-1: {sentence}")]
    assert len(found.problems) == 1


def test_a_position_before_the_log_and_one_at_a_damaged_entry(
    cluster: Both, admin: Admin, stored: Callable[[bytes], Stored], topic: str, fresh_group: str
) -> None:
    assert not stored(b"%d" % LAST_AT).findings
    cluster.stop(0)
    try:
        [log] = log_files(cluster, 0, f"{topic}-1")
        data = bytearray(log.read_bytes())
        data[LARGE_AT + 20] ^= 1
        log.write_bytes(bytes(data[PACKED_AT:]))  # retention deletes whole segments: the log starts later then
        log.rename(log.with_name(f"{PACKED_AT:020d}.kafka"))
    finally:
        cluster.start(0)
    before = stored(b"5")
    assert [each.kind for each in before.findings] == ["offset-before-log"]
    assert "is 10 bytes before the start of its log" in before.findings[0].sentence
    assert before.problems == ("its log no longer has the stored offset 5: messages were deleted before they were "
                               "read",)  # fmt: skip
    [damaged] = stored(b"%d" % LARGE_AT).findings
    assert damaged.kind == "damaged-entry"
    assert damaged.sentence.startswith(f"{topic}-0-1: the entry at its stored offset {LARGE_AT} is damaged: the CRC is")
    assert f"--to {LAST_AT} skips it" in damaged.remedy


def test_limits_end_a_search_and_what_was_not_looked_at_is_not_called_wrong(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    name = TopicPartition(topic, "0-1")
    with zookeeper_connection(cluster.zookeeper_connect) as port:
        service = Cluster(port, "test", 5.0, security=None)
        late = find_entry_faults(service, {name: 5}, THOROUGH._replace(deadline_s=-1))
        assert late[name].fault_is is FaultIs.NOT_LOOKED_AT
        poor = find_entry_faults(service, {name: LARGE_AT + 5000}, THOROUGH._replace(most_bytes=1))
        assert poor[name].fault_is is FaultIs.NO_ENTRY
        assert "no time left to search for the start of its entry" in poor[name].reason
        small = THOROUGH._replace(largest_entry_bytes=5000)
        assert find_entry_faults(service, {name: LARGE_AT}, small) == {}  # only its place can be checked
        glance = find_entry_faults(service, {name: LARGE_AT}, small._replace(searches=False))
        assert glance[name].fault_is is FaultIs.NOT_LOOKED_AT


def test_positions_of_many_partitions_are_looked_at_by_one_request_a_broker(
    cluster: Both, admin: Admin, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    names = [fresh_topic() for _ in range(3)]
    for name in names:
        cluster.create_topic(name)
        for partition in ("0-0", "1-1"):
            send_set(cluster, name, partition, LOG)
            cluster.client.create(f"/consumers/{fresh_group}/offsets/{name}/{partition}", b"16", makepath=True)
    found = admin.verify(fresh_group, least_members=0, patience_s=0)
    assert [(each.kind, each.path.split("/")[4:]) for each in found.findings] == [
        ("offset-within-entry", [name, partition]) for name in sorted(names) for partition in ("0-0", "1-1")
    ]


def test_without_logs_positions_are_not_looked_at(
    cluster: Both, admin: Admin, stored: Callable[[bytes], Stored], fresh_group: str
) -> None:
    assert stored(b"20").findings
    assert admin.verify(fresh_group, least_members=0, patience_s=0, with_logs=False).findings == ()
