"""Mirrors that keep the offsets of the source: after its log start, after holes, and wherever a process is killed."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from mirroring import (
    TARGET_SETTINGS,
    WAIT_S,
    command,
    end_of,
    numbered,
    run_command,
    running,
    send,
    servers_of,
    settings_of,
)

from simpleconsumer.consumer import EARLIEST
from simpleconsumer.types import TopicPartition
from zkconsumer import Producer, ProducerConfig, read_topic
from zkconsumer.admin import BrokerAdmin
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.lanes.offset_filler import EMPTY_TRANSACTIONS, OffsetFiller
from zkconsumer.mirror.mirror_process import Mirror, plan
from zkconsumer.mirror.reports import mirror_status
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

TARGETS = ["4.3.1", "0.11.0.3"]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture(scope="module")
def source() -> Iterator[KafkaCluster]:
    with KafkaCluster("3.9.2", 1, settings=TARGET_SETTINGS) as found:
        yield found


def offsets_of(cluster: KafkaCluster, topic: str, *, isolation: str = "read_committed") -> list[tuple[int, object]]:
    properties = {"bootstrap.servers": servers_of(cluster), "isolation.level": isolation}
    with read_topic(None, topic, [0], properties=properties) as reader:
        return [(message.offset, message.value) for message in reader]


def cut(cluster: KafkaCluster, topic: str, before: int) -> None:
    BrokerAdmin(servers_of(cluster)).cut_topic(topic, before)


def start_of(cluster: KafkaCluster, topic: str) -> int:
    properties = {"bootstrap.servers": servers_of(cluster)}
    with ExitStack() as stack:
        both = Both(MirrorSettings("looking", properties, properties), stack)
        name = TopicPartition(topic, 0)
        [start] = both.target.cluster.log_ends([name], [EARLIEST])[name]
    return int(start)


def transactions(cluster: KafkaCluster, topic: str, *commits: bool) -> None:
    """Transactions of three records each."""
    with Producer(ProducerConfig(metadata_broker_list=servers_of(cluster), transactional_id=topic)) as producer:
        producer.init_transactions(WAIT_S)
        for index, commit in enumerate(commits):
            producer.begin_transaction()
            for number in range(3):
                producer.send(topic, b"transaction %d record %d" % (index, number), partition=0)
            producer.flush(WAIT_S)
            producer.commit_transaction(WAIT_S) if commit else producer.abort_transaction(WAIT_S)


def test_records_get_the_offsets_of_the_source_also_after_holes(source: KafkaCluster, target: KafkaCluster) -> None:
    topic = f"kept-{target.version}"
    source.create_topic(topic)
    send(source, topic, numbered(0, 500))
    cut(source, topic, 300)
    transactions(source, topic, True, False, True, False)
    send(source, topic, numbered(500, 600))
    transactions(source, topic, True)
    settings = settings_of(topic, source, target, topic, until_end=True, preserves_offsets=True)
    Mirror(settings).run()
    end = end_of(source, topic)
    wait_until(lambda: end_of(target, topic) == end, WAIT_S, "the last marker's offset")
    found = offsets_of(target, topic)
    assert found == offsets_of(source, topic)
    assert found[0][0] == 300
    assert offsets_of(target, topic, isolation="read_uncommitted") == found, "small holes are invisible to all readers"
    assert start_of(target, topic) == 300
    [state] = mirror_status(settings)
    assert (state.position, state.source_end, state.target_end, state.lag) == (end, end, end, 0)
    [audited] = audit(settings)
    assert (audited.records, audited.is_equal) == (len(found), True)

    send(source, topic, numbered(600, 700))
    Mirror(settings).run()
    assert offsets_of(target, topic) == offsets_of(source, topic)


def test_a_mirror_that_is_killed_while_it_fills_ends_with_the_offsets_of_the_source(
    source: KafkaCluster, target: KafkaCluster
) -> None:
    topic = f"far-{target.version}"
    first = 5_000_000
    source.create_topic(topic)
    fill(source, topic, first)
    cut(source, topic, first)
    send(source, topic, numbered(0, 300))
    settings = settings_of(topic, source, target, topic, preserves_offsets=True)
    arguments = command(settings, "--whitelist", topic, "--preserve-offsets")
    rng = random.Random(3)
    ends = []
    for _ in range(5):
        before = end_of(target, topic)
        process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        wait_until(lambda: end_of(target, topic) != before, WAIT_S, "filled offsets", state=process.poll)  # noqa: B023
        time.sleep(rng.uniform(0.0, 0.3))  # the moment of the kill, whichever it is
        process.kill()
        process.wait(WAIT_S)
        ends.append(end_of(target, topic))
    assert any(0 < end < first for end in ends), ends
    Mirror(settings_of(topic, source, target, topic, until_end=True, preserves_offsets=True)).run()
    assert offsets_of(target, topic) == offsets_of(source, topic)
    assert start_of(target, topic) == first
    audited = run_command(command(settings, verb="audit"))
    assert (audited.returncode, audited.stderr) == (0, ""), audited.stdout


def fill(cluster: KafkaCluster, topic: str, to_offset: int) -> None:
    """Move the end of the log on, as a log that was written for years."""
    with ExitStack() as stack:
        name = TopicPartition(topic, 0)
        servers = {"bootstrap.servers": servers_of(cluster)}
        both = Both(MirrorSettings("filling", servers, servers), stack)
        with OffsetFiller(name, topic, both.target) as filler:
            assert filler.fill(to_offset, lambda: False)


def test_a_large_hole_is_filled_by_records_that_readers_of_committed_messages_do_not_get(
    source: KafkaCluster, target: KafkaCluster
) -> None:
    topic = f"hole-{target.version}"
    source.create_topic(topic)
    send(source, topic, numbered(0, 100))
    settings = settings_of(topic, source, target, topic, preserves_offsets=True, skips_losses=True, settle_s=1.0)
    with running(settings):
        wait_until(lambda: end_of(target, topic) == 100, WAIT_S, "the first copies")
    send(source, topic, numbered(100, 800))
    cut(source, topic, 100 + 3 * EMPTY_TRANSACTIONS)
    with running(settings):
        wait_until(lambda: end_of(target, topic) == 800, WAIT_S, "the other copies")
    found = offsets_of(target, topic)
    assert [offset for offset, _ in found] == [*range(100), *range(100 + 3 * EMPTY_TRANSACTIONS, 800)]
    assert found[100:] == offsets_of(source, topic)
    [state] = mirror_status(settings)
    assert state.holes == ((100, 100 + 3 * EMPTY_TRANSACTIONS, "retention"),)


def test_the_plan_refuses_topics_whose_holes_grow(source: KafkaCluster, target: KafkaCluster) -> None:
    topic = f"compacts-{target.version}"
    source.create_topic(topic, config={"cleanup.policy": "compact"})
    [found] = plan(settings_of(topic, source, target, topic, preserves_offsets=True))
    assert "is compacted: its records cannot keep their offsets" in found.findings[0]


def test_a_topic_that_has_gone_further_is_refused(source: KafkaCluster, target: KafkaCluster) -> None:
    topic = f"further-{target.version}"
    source.create_topic(topic)
    send(source, topic, numbered(0, 10))
    target.create_topic(topic)
    send(target, topic, numbered(0, 20))
    run = run_command(command(settings_of(topic, source, target, topic), "--whitelist", topic, "--until-end",
                              "--preserve-offsets"))  # fmt: skip
    assert run.returncode != 0
    assert "has offsets 0 to 19, and this mirror has not written them" in run.stderr
