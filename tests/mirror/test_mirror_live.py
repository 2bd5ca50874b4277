"""Mirrors between real brokers: a plain reader of the target counts each record once, in order, whatever is killed."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lane_writing import Wire
from mirroring import (
    TARGET_SETTINGS,
    WAIT_S,
    command,
    end_of,
    numbered,
    read,
    run_command,
    running,
    send,
    servers_of,
    settings_of,
    values,
    wait_copied,
)

from simpleconsumer.types import TopicPartition
from zkconsumer import Producer, ProducerConfig
from zkconsumer.admin import BrokerAdmin
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.errors import AnotherWriter, MirrorRefused, SourceLost
from zkconsumer.mirror.mirror_process import Mirror, plan
from zkconsumer.mirror.reports import mirror_status
from zkconsumer.mirror.sides import MirrorSettings, TopicRules
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
SOURCES = ["0.8.2.2", "3.9.2", *(pytest.param(each, marks=SLOW) for each in ("0.9.0.1", "0.10.2.2", "1.1.1", "4.3.1"))]


@pytest.fixture(scope="module")
def target() -> Iterator[KafkaCluster]:
    with KafkaCluster("4.3.1", 1, settings=TARGET_SETTINGS) as found:
        yield found


@pytest.fixture(params=SOURCES)
def any_source(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters(request.param, 1)


@pytest.fixture
def source(kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_clusters("3.9.2", 1)


@pytest.fixture
def topic(fresh_topic: Callable[[], str]) -> str:
    return fresh_topic()


def test_a_topic_is_made_and_copied_and_the_same_command_goes_on(
    any_source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    any_source.create_topic(topic, partitions=2, config={"retention.ms": -1, "max.message.bytes": 2_000_000})
    for partition in (0, 1):
        send(any_source, topic, numbered(0, 500, 100), partition)
    settings = settings_of(topic, any_source, target, topic, until_end=True)
    Mirror(settings).run()
    for partition in (0, 1):
        send(any_source, topic, numbered(500, 700, 100), partition)
    Mirror(settings).run()
    for partition in (0, 1):
        assert values(target, topic, partition) == numbered(0, 700, 100)
    [first, _] = mirror_status(settings)
    assert (first.position, first.source_end, first.lag, first.runs, first.holes) == (700, 700, 0, 1, ())
    for found in audit(settings):
        assert (found.records, found.different, found.only_target, found.not_copied) == (700, 0, 0, 0)
        assert [leaf.records for leaf in found.leaves] == [700]
        assert found.leaves[0].source_hash == found.leaves[0].target_hash


def test_transactions_are_copied_once_and_their_markers_and_what_was_aborted_are_holes(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    config = ProducerConfig(metadata_broker_list=servers_of(source), transactional_id=topic)
    with Producer(config) as producer:
        producer.init_transactions()
        for first in range(0, 60, 10):
            producer.begin_transaction()
            for value in numbered(first, first + 10):
                producer.send(topic, value, key=b"k", partition=0)
            if first % 20:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    assert values(target, topic) == [*numbered(0, 10), *numbered(20, 30), *numbered(40, 50)]
    [state] = mirror_status(settings)
    assert state.holes == ((10, 22, "transaction"), (32, 44, "transaction"))
    assert state.lag is not None
    [found] = audit(settings)
    assert (found.records, found.different) == (30, 0)


def test_large_batches_are_copied_as_they_are(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    send(source, topic, [random.Random(number).randbytes(1_000) for number in range(2_000)], compression_codec="lz4",
         batch_num_messages=200)  # fmt: skip
    with running(settings_of(topic, source, target, topic)) as mirror:
        wait_copied(mirror, target, topic, 2_000)
        [figures] = mirror.figures().values()
    assert figures.whole_batches >= 8
    assert figures.encoded_batches <= 2
    ours, theirs = read(target, topic), read(source, topic)
    assert [(each.key, each.value, each.timestamp_ms) for each in ours] == [
        (each.key, each.value, each.timestamp_ms) for each in theirs
    ]  # fmt: skip


def test_partitions_that_the_source_gets_are_copied_too(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic)
    send(source, topic, numbered(0, 5))
    with running(settings) as mirror:
        wait_copied(mirror, target, topic, 5)
        BrokerAdmin(servers_of(source)).grow_topic(topic, 2)
        wait_until(lambda: len(mirror.figures()) == 2, WAIT_S, "the new partition to be copied")
        send(source, topic, numbered(5, 10), 1)
        wait_copied(mirror, target, topic, 5, 1)
    assert values(target, topic, 1) == numbered(5, 10)


# -- what is killed ----------------------------------------------------------------------------------------------------


def test_two_processes_that_are_killed_again_and_again_copy_each_record_once(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, partitions=2)
    settings = settings_of(topic, source, target, topic)
    arguments = command(settings, "--whitelist", topic, "--slots", "4", "--progress", "1")
    rng = random.Random(7)
    sent = 0
    processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        for round_number in range(6):
            for partition in (0, 1):
                send(source, topic, numbered(sent, sent + 400, 200), partition)
            sent += 400
            time.sleep(rng.uniform(0.5, 2.0))  # a moment of the copying, whichever it is
            victim = round_number % 2
            processes[victim].send_signal(signal.SIGKILL)
            processes[victim].wait(WAIT_S)
            processes[victim] = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    finally:
        for process in processes:
            process.kill()
            process.wait(WAIT_S)
    Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    for partition in (0, 1):
        assert values(target, topic, partition) == numbered(0, sent, 200)
    audited = run_command(command(settings, verb="audit"))
    assert (audited.returncode, audited.stderr) == (0, "")
    assert "both sides are equal" in audited.stdout


def test_a_process_that_is_killed_is_replaced_within_seconds(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 50))
    arguments = command(settings_of(topic, source, target, topic), "--whitelist", topic)
    first = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    wait_until(lambda: end_of(target, topic) == 50, WAIT_S, "50 records")
    first.kill()
    first.wait(WAIT_S)
    send(source, topic, numbered(50, 80))
    started_at = time.monotonic()
    second = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: end_of(target, topic) == 80, WAIT_S, "80 records")
        print(f"copies again {time.monotonic() - started_at:.1f} s after it was started")
    finally:
        second.terminate()
        second.wait(WAIT_S)
    assert values(target, topic) == numbered(0, 80)


def test_a_broker_of_the_target_that_is_killed_costs_no_record(source: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    with KafkaCluster("3.9.2", 1, settings=TARGET_SETTINGS) as target:
        settings = settings_of(topic, source, target, topic)
        with running(settings) as mirror:
            send(source, topic, numbered(0, 300))
            wait_copied(mirror, target, topic, 300)
            [broker] = target.brokers
            target.kill(broker)
            send(source, topic, numbered(300, 600))
            target.start(broker)
            wait_copied(mirror, target, topic, 600)
        assert values(target, topic) == numbered(0, 600)


# -- what is lost, and what is refused ---------------------------------------------------------------------------------


def test_records_that_were_deleted_before_they_were_copied_stop_the_lane_or_are_a_hole(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    settings = settings_of(topic, source, target, topic, until_end=True, settle_s=0.0)
    Mirror(settings).run()
    send(source, topic, numbered(20, 50))
    BrokerAdmin(servers_of(source)).cut_topic(topic, 35)
    with pytest.raises(SourceLost, match=rf"{topic}/0 at offset 20: .*offsets 20 to 34 were deleted"):
        Mirror(settings).run()
    assert values(target, topic) == numbered(0, 20)
    Mirror(settings_of(topic, source, target, topic, until_end=True, settle_s=0.0, skips_losses=True)).run()
    assert values(target, topic) == [*numbered(0, 20), *numbered(35, 50)]
    [state] = mirror_status(settings)
    assert state.holes == ((20, 35, "retention"),)
    [found] = audit(settings)
    assert (found.records, found.different, found.by_leaves, found.only_target) == (15, 0, 20, 0)


def test_a_source_topic_that_is_created_again_is_not_copied_on(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    source.delete_topic(topic)
    source.create_topic(topic)
    send(source, topic, numbered(100, 150))
    with pytest.raises(SourceLost, match="deleted and created again"):
        Mirror(settings).run()
    assert values(target, topic) == numbered(0, 20)


def test_another_writer_on_the_target_is_named_and_nothing_is_written_after_it(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    Wire(target, TopicPartition(topic, 0)).put_foreign(20)
    send(source, topic, numbered(20, 40))
    with pytest.raises(AnotherWriter, match=f"{topic}/0: another writer: .*without a producer id|found"):
        Mirror(settings).run()
    assert len(values(target, topic)) == 21


def test_a_target_that_has_records_already_is_refused(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    for cluster in (source, target):
        cluster.create_topic(topic)
        send(cluster, topic, numbered(0, 3))
    with pytest.raises(MirrorRefused, match=f"{topic}/0 has offsets 0 to 2, and this mirror has not written them"):
        Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    assert values(target, topic) == numbered(0, 3)


def test_what_the_target_would_delete_at_once_is_refused_by_the_plan(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, config={"retention.ms": 3_600_000})
    old_ms = int(time.time() * 1000) - 40 * 86_400_000
    config = ProducerConfig(metadata_broker_list=servers_of(source))
    with Producer(config) as producer:
        producer.send(topic, b"old", partition=0, timestamp_ms=old_ms)
    settings = settings_of(topic, source, target, topic)
    planned = run_command(command(settings, "--whitelist", topic, "--json", verb="plan"))
    [found] = json.loads(planned.stdout)["topics"]
    assert (planned.returncode, found["action"], found["config"]) == (4, "create", {"retention.ms": "3600000"})
    assert f"{topic}/0 has a record that is 960 hours old" in found["problems"][0]
    given = ["--whitelist", topic, "--topic-config", "retention.ms=-1"]
    assert run_command(command(settings, *given, verb="plan")).returncode == 0
    ran = run_command(command(settings, *given, "--until-end"))
    assert ran.returncode == 0, ran.stderr
    assert values(target, topic) == [b"old"]
    status = run_command(command(settings, "--json", verb="status"))
    [state] = json.loads(status.stdout)["partitions"]
    assert (status.returncode, state["offset"], state["lag"]) == (0, 1, 0)


def test_records_that_are_old_by_now_do_not_keep_a_mirror_from_going_on(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, config={"retention.ms": 3_600_000})
    send(source, topic, numbered(0, 10))
    settings = settings_of(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    BrokerAdmin(servers_of(source)).set_topic(topic, {"retention.ms": -1})
    old_ms = int(time.time() * 1000) - 40 * 86_400_000
    with Producer(ProducerConfig(metadata_broker_list=servers_of(source))) as producer:
        producer.send(topic, b"old", partition=0, timestamp_ms=old_ms)
    Mirror(settings).run()


@pytest.mark.parametrize("prefix", ["", "back."])
def test_what_was_copied_from_a_cluster_is_not_copied_back_to_it(
    source: KafkaCluster, target: KafkaCluster, topic: str, prefix: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 10))
    Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    rules = TopicRules(prefix=prefix)
    back = settings_of(f"{topic}-back", target, source, topic, by_brokers=True, until_end=True, rules=rules)
    with pytest.raises(MirrorRefused, match="no topic of the source matches"):
        Mirror(back).run()
    assert values(source, topic) == numbered(0, 10)


def test_within_one_cluster_copies_are_not_copied_again(target: KafkaCluster, topic: str) -> None:
    target.create_topic(topic)
    send(target, topic, numbered(0, 10))
    settings = settings_of(
        topic, target, target, f".*{topic}", by_brokers=True, until_end=True, rules=TopicRules(prefix="copy.")
    )  # fmt: skip
    for _ in range(2):
        Mirror(settings).run()
    assert values(target, f"copy.{topic}") == numbered(0, 10)
    assert [name for name in plan_names(settings) if topic in name] == [topic]


def plan_names(settings: MirrorSettings) -> list[str]:
    return [each.source for each in plan(settings)]


def test_processes_that_start_together_share_the_work_and_make_each_topic_once(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, partitions=4)
    for partition in range(4):
        send(source, topic, numbered(0, 50), partition)
    arguments = command(settings_of(topic, source, target, topic), "--whitelist", topic, "--until-end")
    processes = [subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(process.communicate(timeout=WAIT_S)[1], process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0], ended
    for partition in range(4):
        assert values(target, topic, partition) == numbered(0, 50)


def test_what_an_unclean_election_has_cut_off_on_the_target_is_copied_again(source: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    cuts = {"unclean.leader.election.enable": True, "replica.lag.time.max.ms": 2000}
    with KafkaCluster("3.9.2", 2, settings={**TARGET_SETTINGS, **cuts}) as target:
        target.create_topic(topic, assignment={0: [0, 1]})
        settings = settings_of(topic, source, target, topic)
        send(source, topic, numbered(0, 100))
        with running(settings) as mirror:
            wait_copied(mirror, target, topic, 100)
            target.kill(1)
            send(source, topic, numbered(100, 200))
            wait_until(lambda: [each.position for each in mirror.figures().values()] == [200], WAIT_S, "200 records",
                       state=mirror.figures)  # fmt: skip
            target.kill(0)
            target.start(1)
            wait_until(lambda: target.leader(topic, 0) == 1, WAIT_S, "the stale replica to lead")
            target.start(0)
            send(source, topic, numbered(200, 300))
            wait_copied(mirror, target, topic, 300)
        assert values(target, topic) == numbered(0, 300)


def test_the_walk_through_of_the_document_works(
    kafka_clusters: Callable[[str, int], KafkaCluster], target: KafkaCluster
) -> None:
    source = kafka_clusters("0.8.2.2", 1)
    for topic in ("clicks", "views"):
        source.create_topic(topic)
        send(source, topic, numbered(0, 30))
    text = (Path(__file__).parents[2] / "docs" / "MIRROR.md").read_text("utf-8")
    commands = re.findall(r"```sh\nzkconsumer (.*?)\n```", text)
    words = [
        [sys.executable, "-m", "zkconsumer.cli", *shlex.split(
            line.replace("zk1:2181", source.zookeeper_connect).replace("new1:9092", servers_of(target))
        )] for line in commands
    ]  # fmt: skip
    assert [line.split()[1] for line in commands] == ["plan", "run", "status", "audit"]
    planned = run_command(words[0])
    assert planned.returncode == 0, planned.stdout
    assert re.search(r"clicks +clicks +1 +create", planned.stdout)
    process = subprocess.Popen(words[1], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: run_command(words[2]).returncode == 0, WAIT_S, "all to be copied")
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 0, said
    assert "mirror: 2 partitions" in said
    audited = run_command(words[3])
    assert (audited.returncode, audited.stderr) == (0, "")
    assert "both sides are equal" in audited.stdout
    assert values(target, "views") == numbered(0, 30)
