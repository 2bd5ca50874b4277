"""Mirrors of Kafka 0.7, whose positions are bytes: each record once and in order, wherever a process ends."""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator, Sequence

import pytest
from kafka_07 import BOTH_07, Both, cluster_07, entry, send_set
from mirroring import (
    TARGET_SETTINGS,
    WAIT_S,
    command,
    end_of,
    numbered,
    read,
    run_command,
    running,
    settings_of,
    values,
)
from mirroring import send as send_to_target

from zkconsumer.mirror import kept_runs
from zkconsumer.mirror.audit.audit_findings import LaneAudit
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.errors import SourceLost
from zkconsumer.mirror.mirror_process import Mirror, plan
from zkconsumer.mirror.reports import mirror_status
from zkconsumer.mirror.sides import MirrorSettings
from zkconsumer.mirror.state_log import read_runs
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

ONE_EACH = {"num.partitions": 1, "log.file.size": 1000}


@pytest.fixture(scope="module")
def target() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.3.1", 1, settings=TARGET_SETTINGS) as found:
        yield found


@pytest.fixture(params=BOTH_07)
def source(request: pytest.FixtureRequest) -> Iterator[Both]:
    with cluster_07(request.param, 2, settings=ONE_EACH) as found:
        yield found


@pytest.fixture
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, generation="0.7", settings=ONE_EACH) as found:
        yield found


def send(cluster: Both, topic: str, given: Sequence[bytes], partition: str = "0-0", *, in_one: int = 0) -> int:
    """Entries of one message each, or compressed ones with so many messages; returns where the log ends."""
    plain = [entry(value) for value in given]
    data = b"".join(plain)
    if in_one:
        parts = [b"".join(plain[first : first + in_one]) for first in range(0, len(plain), in_one)]
        data = b"".join(map(compressed, parts))
    return send_set(cluster, topic, partition, data)


def compressed(inner: bytes) -> bytes:
    """An entry that holds a set, by gzip."""
    payload = gzip.compress(inner)
    message = struct.pack(">bbI", 1, 1, zlib.crc32(payload)) + payload
    return struct.pack(">i", len(message)) + message


def run_starts(settings: MirrorSettings) -> list[int]:
    """Where the runs of the first partition start on the target."""
    [found] = [
        runs for lane, runs in read_runs(None, settings.target, settings.state_topic).items()
        if lane.source.partition == "0-0"
    ]  # fmt: skip
    return [run.target_first for run in found.runs]


def copied_all(settings: MirrorSettings) -> list[LaneAudit]:
    """What the audit finds after everything was copied."""
    Mirror(settings).run()
    assert [state.lag for state in mirror_status(settings)] == [0] * len(list(mirror_status(settings)))
    found = list(audit(settings))
    assert all(each.is_equal for each in found)
    return found


def test_each_message_is_copied_once_whatever_its_entry_holds(source: Both, target: KafkaCluster) -> None:
    topic = "entries"
    source.create_topic(topic)
    plain, packed, more = numbered(0, 300), numbered(300, 900), numbered(900, 1000)
    send(source, topic, plain)
    send(source, topic, packed, in_one=70)
    other = send(source, topic, numbered(0, 40), "1-0", in_one=40)
    settings = settings_of("entries", source, target, topic, until_end=True)
    assert [(each.partitions, each.findings) for each in plan(settings)] == [(2, ())]

    first = copied_all(settings)
    assert [(each.lane.source.partition, each.lane.target.partition, each.records) for each in first] == [
        ("0-0", 0, 900), ("1-0", 1, 40)
    ]  # fmt: skip
    end = send(source, topic, more, in_one=33)
    assert [each.records for each in copied_all(settings)] == [1000, 40]
    assert values(target, topic) == [*plain, *packed, *more]
    assert [(message.key, message.timestamp_ms) for message in read(target, topic)[:1]] == [(None, None)]
    assert [state.position for state in mirror_status(settings)] == [end, other]


def test_a_process_that_is_killed_within_an_entry_goes_on_after_its_last_message(
    embedded: EmbeddedCluster, target: KafkaCluster
) -> None:
    topic = "killed-within"
    embedded.create_topic(topic)
    given = numbered(0, 60_000, 100)
    for first in range(0, len(given), 6000):
        send(embedded, topic, given[first : first + 6000], in_one=6000)
    settings = settings_of("killed-within", embedded, target, topic)
    arguments = command(settings, "--whitelist", topic, "--rate", "3000000")
    rng = random.Random(7)
    ends = []
    for _ in range(4):
        before = end_of(target, topic)
        process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        wait_until(lambda: end_of(target, topic) > max(before, 0), WAIT_S, "records", state=process.poll)  # noqa: B023
        time.sleep(rng.uniform(0.0, 0.4))  # the moment of the kill, whichever it is
        process.kill()
        process.wait(WAIT_S)
        ends.append(end_of(target, topic))
    assert any(end % 6000 for end in ends)
    assert [each.records for each in copied_all(settings_of("killed-within", embedded, target, topic, until_end=True))
            if each.lane.source.partition == "0-0"] == [60_000]  # fmt: skip
    assert values(target, topic) == given


def test_a_restart_counts_from_the_last_run_and_a_lane_that_waits_stores_one(
    embedded: EmbeddedCluster, target: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a restart reads again may be deleted meanwhile: a lane that is at the end needs nothing of it."""
    monkeypatch.setattr(kept_runs, "COUNTED_RECORDS", 500)
    topic = "counted"
    embedded.create_topic(topic)
    for first in range(0, 5000, 100):
        send(embedded, topic, numbered(first, first + 100), in_one=30)
    settings = settings_of("counted", embedded, target, topic)
    with running(settings):
        wait_until(lambda: end_of(target, topic) == 5000, WAIT_S, "the copies")
        wait_until(lambda: 5000 in run_starts(settings), WAIT_S, "a run at the end")
        assert len(run_starts(settings)) >= 9
    end = embedded.log(topic, "0-0").size_bytes
    found = next(each for each in audit(settings) if each.lane.source.partition == "0-0")
    assert (found.records, found.different, found.not_copied) == (5000, 0, 0)
    assert embedded.log(topic, "0-0").delete_head(end) > 0
    more = numbered(5000, 5100)
    send(embedded, topic, more)
    Mirror(settings_of("counted", embedded, target, topic, until_end=True)).run()
    assert values(target, topic) == numbered(0, 5100)


def test_what_the_source_has_deleted_is_a_hole_or_stops_the_lane(
    embedded: EmbeddedCluster, target: KafkaCluster
) -> None:
    topic = "deleted"
    embedded.create_topic(topic)
    send(embedded, topic, numbered(0, 100))
    copied_all(settings_of("deleted", embedded, target, topic, until_end=True))
    hole = send(embedded, topic, numbered(100, 200))
    rest = numbered(200, 300)
    send(embedded, topic, rest)
    embedded.log(topic, "0-0").delete_head(hole)
    with pytest.raises(SourceLost, match="were deleted before they were copied"):
        Mirror(settings_of("deleted", embedded, target, topic, until_end=True)).run()
    settings = settings_of("deleted", embedded, target, topic, until_end=True, skips_losses=True, settle_s=1.0)
    Mirror(settings).run()
    assert values(target, topic) == [*numbered(0, 100), *rest]
    state = mirror_status(settings)[0]
    assert (state.lag, [(end, cause) for _, end, cause in state.holes]) == (0, [(hole, "retention")])
    found = next(iter(audit(settings)))
    assert (found.records, found.only_target, found.is_equal) == (100, 100, True)


def test_partitions_keep_their_numbers_when_brokers_go_and_come(
    embedded: EmbeddedCluster, target: KafkaCluster
) -> None:
    topic = "numbers"
    embedded.create_topic(topic)
    send(embedded, topic, numbered(0, 10), "1-0")
    embedded.stop(0)
    wait_until(lambda: embedded.partitions(topic) == ["1-0"], WAIT_S, "one broker")
    settings = settings_of("numbers", embedded, target, topic, until_end=True)
    Mirror(settings).run()
    embedded.start(0)
    wait_until(lambda: embedded.partitions(topic) == ["0-0", "1-0"], WAIT_S, "both brokers")
    send(embedded, topic, numbered(10, 30), "0-0")
    copied_all(settings)
    assert (values(target, topic, 0), values(target, topic, 1)) == (numbered(0, 10), numbered(10, 30))


def test_the_command_line_says_all_of_it(embedded: EmbeddedCluster, target: KafkaCluster) -> None:
    topic = "commands-07"
    embedded.create_topic(topic)
    send(embedded, topic, numbered(0, 50))
    settings = settings_of("commands-07", embedded, target, topic)
    run = run_command(command(settings, "--whitelist", topic, "--until-end"))
    assert run.returncode == 0, run.stderr
    status = run_command(command(settings, "--json", verb="status"))
    assert (status.returncode, status.stderr) == (0, "")
    assert [(each["partition"], each["target_partition"], each["lag"])
            for each in json.loads(status.stdout)["partitions"]] == [("0-0", 0, 0), ("1-0", 1, 0)]  # fmt: skip
    audited = run_command(command(settings, verb="audit"))
    assert (audited.returncode, "both sides are equal" in audited.stdout) == (0, True)


def test_the_audit_names_a_record_that_the_source_does_not_have(
    embedded: EmbeddedCluster, target: KafkaCluster
) -> None:
    topic = "foreign-07"
    embedded.create_topic(topic)
    end = send(embedded, topic, numbered(0, 50))
    settings = settings_of("foreign-07", embedded, target, topic, until_end=True)
    copied_all(settings)
    send_to_target(target, topic, [b"of somebody else"])
    found = next(iter(audit(settings)))
    assert (found.records, found.different, found.is_equal) == (50, 1, False)
    [difference] = found.differences
    assert difference == (end, 50, "the source does not have it")
