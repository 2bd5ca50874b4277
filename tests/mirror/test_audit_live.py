"""The audit of mirrors between real brokers: what differs is named, and leaves prove what the source has no more."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from mirroring import (
    TARGET_SETTINGS,
    WAIT_S,
    command,
    end_of,
    numbered,
    run_command,
    send,
    servers_of,
    settings_of,
    values,
)

from simpleconsumer.types import TopicPartition
from zkconsumer import Producer, ProducerConfig
from zkconsumer.admin import BrokerAdmin
from zkconsumer.mirror.audit.audit_findings import LaneAudit, RangeState
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.lane_leaves import DECODED, LeafPart
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.mirror.sides import Both, MirrorSettings, TopicRules, opened_target
from zkconsumer.mirror.state_log import StateLog, read_leaves, read_runs
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

RANDOM = [random.Random(number).randbytes(1_000) for number in range(2_000)]


@pytest.fixture(scope="module")
def target() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.3.1", 1, settings=TARGET_SETTINGS) as found:
        yield found


@pytest.fixture
def source(kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters("3.9.2", 1)


@pytest.fixture
def topic(fresh_topic: Callable[[], str]) -> str:
    return fresh_topic()


def send_whole(cluster: Cluster, topic: str) -> None:
    """2,000 records in batches that are large enough to be copied as they are, but for the last one."""
    send(cluster, topic, RANDOM, compression_codec="lz4", batch_num_messages=200)


def parts_of(settings: MirrorSettings) -> list[LeafPart]:
    [found] = read_leaves(settings.target, settings.state_topic).values()
    return sorted(part for record in found.values() for part in record.parts)


def doctored(settings: MirrorSettings, lane: Callable[[Lane], Lane], leaf: Callable[[LeafPart], LeafPart]) -> None:
    """Give another lane the runs and the leaves of the one lane of a mirror."""
    [(old, runs)] = read_runs(None, settings.target, settings.state_topic).items()
    [leaves] = read_leaves(settings.target, settings.state_topic).values()
    with ExitStack() as stack:
        side, _, _, _ = opened_target(settings, stack)
        state = StateLog(settings.state_topic, 0, side, settings.target)
        state.put([run._replace(lane=lane(old)).encoded("doctor") for run in runs.runs])
        state.put([
            record._replace(lane=lane(old), parts=tuple(map(leaf, record.parts))).encoded()
            for record in leaves.values()
        ])  # fmt: skip


def of_topic(found: Iterator[LaneAudit], topic: str) -> LaneAudit:
    [wanted] = [each for each in found if topic in (each.lane.source.topic, each.lane.target.topic)]
    return wanted


def states(found: LaneAudit) -> list[tuple[str, int, int, int | None]]:
    return [(each.state.value, each.first, each.end, each.target_first) for each in found.ranges]


# -- what is equal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.8.2.2", "3.9.2"])
def test_when_the_source_is_gone_the_target_alone_is_proved(version: str, target: KafkaCluster, topic: str) -> None:
    with KafkaCluster(version, 1) as source:
        source.create_topic(topic)
        send_whole(source, topic)
        send(source, topic, numbered(2_000, 2_300))
        settings = settings_of(topic, source, target, topic, until_end=True)
        Mirror(settings).run()
        whole = sum(part.records for part in parts_of(settings) if part.codecs != DECODED)
        assert whole == 0 if version == "0.8.2.2" else whole >= 1_600
        [both] = audit(settings)
        assert (both.records, both.different, both.only_target) == (2_300, 0, 0)
        assert both.leaves[0].source_hash == both.leaves[0].target_hash
    arguments = ["--target-only", "--json"]
    ran = run_command([*command(settings, verb="audit"), *arguments])
    [found] = json.loads(ran.stdout)["partitions"]
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (found["equal_by_leaf"], found["not_proved"], found["different"], found["equal"]) == (2_300, 0, 0, 0)
    assert found["ranges"] == [
        {"start": 0, "end": 2_300, "target_offset": 0, "messages": 2_300, "state": "equal_by_leaf"}
    ]  # fmt: skip
    [leaf] = found["leaves"]
    assert (leaf["messages"], leaf["hash"], leaf["target_hash"]) == (2_300, None, both.leaves[0].target_hash)


def test_records_that_the_source_has_deleted_are_proved_by_leaves(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send_whole(source, topic)
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    BrokerAdmin(servers_of(source)).cut_topic(topic, 700)
    [found] = audit(settings)
    assert (found.records, found.by_leaves, found.only_target, found.different) == (1_300, 700, 0, 0)
    assert states(found) == [("equal_by_leaf", 0, 700, 0), ("equal", 700, 2_000, 700)]


def test_what_transactions_have_left_is_proved_too(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    config = ProducerConfig(metadata_broker_list=servers_of(source), transactional_id=topic)
    with Producer(config) as producer:
        producer.init_transactions()
        for number, value in enumerate((b"small", b"x" * 1_000) * 6):
            producer.begin_transaction()
            for _ in range(50):
                producer.send(topic, value, key=b"k", partition=0)
            if number % 4 == 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    [both], [ours] = audit(settings), audit(settings, target_only=True)
    assert (both.records, both.different, both.only_target) == (450, 0, 0)
    assert (ours.by_leaves, ours.different, ours.only_target) == (450, 0, 0)


def test_of_compacted_topics_there_are_no_leaves_and_both_logs_are_compared(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, config={"cleanup.policy": "compact"})
    send(source, topic, numbered(0, 400))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    assert read_leaves(settings.target, settings.state_topic) == {}
    [found] = audit(settings)
    assert (found.records, found.different) == (400, 0)
    ran = run_command([*command(settings, verb="audit"), "--target-only"])
    assert (ran.returncode, "400 records cannot be proved" in ran.stdout) == (4, True)
    assert "offsets 0 to 399 of the source, from offset 0 of the target: no leaf has these records" in ran.stdout


def test_batches_that_the_target_compresses_anew_are_equal_and_not_proved_without_the_source(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send_whole(source, topic)
    rules = TopicRules(settings={"compression.type": "gzip"})
    settings = settings_of(topic, source, target, topic, until_end=True, rules=rules)
    Mirror(settings).run()
    [both], [ours] = audit(settings), audit(settings, target_only=True)
    assert (both.records, both.different) == (2_000, 0)
    assert (ours.different, ours.by_leaves + ours.only_target) == (0, 2_000)
    assert ours.only_target >= 1_600


def test_after_kills_both_sides_are_equal_and_what_no_leaf_has_is_named(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic)
    arguments = command(settings, "--whitelist", topic)
    for first in range(0, 1_200, 400):
        send(source, topic, numbered(first, first + 400, 100))
        process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        wait_until(lambda count=first + 400: end_of(target, topic) >= count, WAIT_S, "the records")  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
    send(source, topic, numbered(1_200, 1_500, 100))
    Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    assert values(target, topic) == numbered(0, 1_500, 100)
    [both] = audit(settings)
    assert (both.records, both.different) == (1_500, 0)
    [ours] = audit(settings, target_only=True)
    assert (ours.different, ours.by_leaves + ours.only_target) == (0, 1_500)
    assert ours.by_leaves >= 300
    gaps = [each for each in ours.ranges if each.state is RangeState.UNPROVED]
    assert sum(each.records for each in gaps) == ours.only_target


def test_the_records_of_both_sides_are_counted_by_the_hours_of_their_times(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, config={"retention.ms": -1})
    hour_ms = 3_600_000
    with Producer(ProducerConfig(metadata_broker_list=servers_of(source))) as producer:
        for hour, count in ((400_000, 3), (400_002, 2), (400_000, 1)):
            for _ in range(count):
                producer.send(topic, b"x" * 20_000, partition=0, timestamp_ms=hour * hour_ms + 5)
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    [found] = audit(settings, hours=True)
    assert (found.records, found.different) == (6, 0)
    assert found.hours == [(400_000 * hour_ms, 4, 4), (400_002 * hour_ms, 2, 2)]
    ran = run_command([*command(settings, verb="audit"), "--hours", "--target-only"])
    assert ran.returncode == 0, ran.stderr
    assert "2015-08-19T16:00Z" in ran.stdout


# -- what differs ------------------------------------------------------------------------------------------------------


def test_a_record_that_is_another_one_on_the_target_is_named_with_and_without_the_source(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 300))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    other = f"{topic}-other"
    target.create_topic(other)
    send(target, other, [*numbered(0, 123), b"replaced", *numbered(124, 300)])
    doctored(settings, lambda lane: lane._replace(target=TopicPartition(other, 0)), lambda part: part)
    found = of_topic(audit(settings), other)
    assert [(each.source_offset, each.target_offset) for each in found.differences] == [(123, 123)]
    assert found.differences[0].what == "key, value or headers differ: the target has changed since it was copied"
    assert states(found) == [("equal", 0, 123, 0), ("different", 123, 124, 123), ("equal", 124, 300, 124)]
    ours = of_topic(audit(settings, target_only=True), other)
    assert (ours.different, ours.by_leaves, states(ours)) == (300, 0, [("different", 0, 300, 0)])
    ran = run_command([*command(settings, verb="audit"), "--target-only"])
    assert ran.returncode == 1
    assert "offset 0: records 0 to 299 of the source are not what was copied" in ran.stdout


def test_a_source_that_has_changed_since_it_was_copied_is_named(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 300))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    other = f"{topic}-other"
    source.create_topic(other)
    send(source, other, [*numbered(0, 7), b"replaced", *numbered(8, 300)])
    doctored(settings, lambda lane: lane._replace(source=TopicPartition(other, 0)), lambda part: part)
    found = of_topic(audit(settings), other)
    assert [each.source_offset for each in found.differences] == [7]
    assert found.differences[0].what.endswith("the target has what was copied, and the source has changed since")


def test_batches_that_are_not_what_was_copied_are_named(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    send_whole(source, topic)
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    other = f"{topic}-other"
    source.create_topic(other)
    send_whole(source, other)
    wrong: dict[str, Any] = {"digest": "00" * 16}
    doctored(settings, lambda lane: lane._replace(source=TopicPartition(other, 0)), lambda part: part._replace(**wrong))
    both, ours = of_topic(audit(settings), other), of_topic(audit(settings, target_only=True), other)
    assert (ours.by_leaves, ours.different) == (0, 2_000)
    assert "have changed since on both sides" in both.differences[0].what


def test_a_record_that_the_target_lacks_is_named(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 300))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    other = f"{topic}-other"
    target.create_topic(other)
    config = ProducerConfig(metadata_broker_list=servers_of(target), transactional_id=topic)
    with Producer(config) as producer:  # the marker has the offset of a record
        producer.init_transactions()
        producer.begin_transaction()
        for value in numbered(0, 100):
            producer.send(other, value, key=value[-3:], partition=0)
        producer.commit_transaction()
    send(target, other, numbered(101, 300))
    doctored(settings, lambda lane: lane._replace(target=TopicPartition(other, 0)), lambda part: part)
    found = of_topic(audit(settings), other)
    assert [(each.source_offset, each.target_offset, each.what) for each in found.differences] == [
        (100, None, "the target does not have it")
    ]  # fmt: skip
    ours = of_topic(audit(settings, target_only=True), other)
    assert (ours.different, ours.differences[0].what) == (
        1, "records 0 to 299 of the source: the target lacks 1 of them"
    )  # fmt: skip


def test_what_was_cut_off_on_the_target_is_named_if_the_source_cannot_give_it_again(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 300))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    other = f"{topic}-other"
    target.create_topic(other)
    send(target, other, numbered(0, 250))
    doctored(settings, lambda lane: lane._replace(target=TopicPartition(other, 0)), lambda part: part)
    found = of_topic(audit(settings), other)
    assert (found.records, found.not_copied, found.different) == (250, 50, 0)
    ours = of_topic(audit(settings, target_only=True), other)
    assert (ours.different, ours.differences[0].what) == (
        50, "records 250 to 299 of the source were copied, and the target's log ends at 250"
    )  # fmt: skip
    BrokerAdmin(servers_of(source)).cut_topic(topic, 280)
    found = of_topic(audit(settings), other)
    assert (found.not_copied, found.different) == (20, 30)


# -- the state topic ---------------------------------------------------------------------------------------------------


def test_leaves_before_the_start_of_both_logs_are_deleted(
    source: KafkaCluster, target: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkconsumer.mirror.leaf_writer.LEAF_OFFSETS", 100)
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True)
    for first in (0, 150, 300):
        send(source, topic, numbered(first, first + 150))
        Mirror(settings).run()
    assert [part[:2] for part in parts_of(settings)] == [(0, 150), (150, 300), (300, 450)]
    BrokerAdmin(servers_of(source)).cut_topic(topic, 400)
    BrokerAdmin(servers_of(target)).cut_topic(topic, 200)
    monkeypatch.setattr("zkconsumer.mirror.leaf_writer.PRUNE_S", 0.0)
    send(source, topic, numbered(450, 460))
    Mirror(settings).run()
    assert [part[:2] for part in parts_of(settings)] == [(150, 300), (300, 450), (450, 460)]


def test_both_clusters_of_a_mirror_are_closed_when_an_audit_is_left(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, partitions=6)
    for partition in range(6):
        send(source, topic, numbered(0, 50), partition)
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    found = audit(settings)
    assert next(found).records == 50
    found.close()  # type: ignore[attr-defined]
    with ExitStack() as stack:
        assert Both(settings, stack).source_id
