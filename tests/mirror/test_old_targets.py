"""Mirrors to real brokers before Kafka 0.11, which have no sequence numbers: each record once and in order."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from mirroring import WAIT_S, command, numbered, read, run_command, running, send, servers_of, settings_of, values

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from zkconsumer import Producer, ProducerConfig
from zkconsumer.admin import BrokerAdmin
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.errors import AnotherWriter, HeadersRefused, MirrorRefused, RepeatedRequest
from zkconsumer.mirror.mirror_process import Mirror, plan
from zkconsumer.mirror.reports import mirror_status
from zkconsumer.mirror.sides import MirrorSettings, TopicRules
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.proxy.kafka_frames import PRODUCE, Exchange, RawReply
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

SLOW = pytest.mark.slow
PAIRS = [("3.9.2", "0.8.2.2"), ("4.3.1", "0.10.2.2"), ("0.8.2.2", "0.9.0.1"),
         *(pytest.param(pair, marks=SLOW) for pair in (("4.3.1", "0.8.1.1"), ("1.1.1", "0.10.2.2")))]  # fmt: skip
TARGETS = ["0.8.2.2", pytest.param("0.10.2.2", marks=SLOW)]


@pytest.fixture
def topic(fresh_topic: Callable[[], str]) -> str:
    return fresh_topic()


@pytest.fixture(params=PAIRS, ids=lambda pair: "->".join(pair))
def pair(request: pytest.FixtureRequest, kafka_clusters: Callable[[str, int], KafkaCluster]) -> Any:
    return tuple(kafka_clusters(version, 1) for version in request.param)


def old(name: str, source: Cluster, target: Cluster, topic: str, **more: Any) -> MirrorSettings:
    """A mirror of one topic to a target that is named by its ZooKeeper; sources of Kafka 4 have none."""
    given = {
        "by_brokers": getattr(source, "version", "").startswith("4."),
        "target_zookeeper": target.zookeeper_connect,
        **more,
    }
    found: MirrorSettings = settings_of(name, source, target, topic, **given)
    return found


def end_at(target: KafkaCluster, topic: str, partition: int = 0) -> int:
    """Where the log of a partition ends; -1 if nobody says it now."""
    try:
        leader = target.leader(topic, partition)
        if leader is None:
            return -1
        with SimpleConsumer("127.0.0.1", target.port(leader)) as client:
            return int(client.get_offsets_before(topic, partition, LATEST)[0])
    except (BrokerError, SimpleConsumerError, KeyError):
        return -1


def in_sync(target: KafkaCluster, topic: str) -> set[int]:
    """The replicas of partition 0 that may lead."""
    data, _ = target.client.get(f"/brokers/topics/{topic}/partitions/0/state")
    return set(json.loads(data)["isr"])


def test_a_topic_is_made_and_copied_and_the_same_command_goes_on(pair: Any, topic: str) -> None:
    source, target = pair
    source.create_topic(topic, partitions=2, config={"retention.ms": 700_000_000, "max.message.bytes": 2_000_000})
    for partition in (0, 1):
        send(source, topic, numbered(0, 500, 100), partition)
    settings = old(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    for partition in (0, 1):
        send(source, topic, numbered(500, 700, 100), partition)
    Mirror(settings).run()
    for partition in (0, 1):
        assert values(target, topic, partition) == numbered(0, 700, 100)
    [first, _] = mirror_status(settings)
    assert (first.position, first.source_end, first.lag, first.runs, first.holes) == (700, 700, 0, 1, ())
    for found in audit(settings):
        assert (found.records, found.different, found.only_target, found.not_copied) == (700, 0, 0, 0)


def test_times_are_kept_from_0_10_on_and_codecs_where_the_target_knows_them(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.10.2.2", 1)
    source.create_topic(topic)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        send(source, topic, [random.Random(number).randbytes(300) for number in range(200)], compression_codec=codec)
    Mirror(old(topic, source, target, topic, until_end=True)).run()
    ours, theirs = read(target, topic), read(source, topic)
    assert len(ours) == 1_000
    assert [(each.key, each.value, each.timestamp_ms) for each in ours] == [
        (each.key, each.value, each.timestamp_ms) for each in theirs
    ]  # fmt: skip


def test_transactions_are_copied_once_and_their_markers_and_what_was_aborted_are_holes(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic)
    with Producer(ProducerConfig(metadata_broker_list=servers_of(source), transactional_id=topic)) as producer:
        producer.init_transactions()
        for first in range(0, 60, 10):
            producer.begin_transaction()
            for value in numbered(first, first + 10):
                producer.send(topic, value, key=b"k", partition=0)
            if first % 20:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    settings = old(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    assert values(target, topic) == [*numbered(0, 10), *numbered(20, 30), *numbered(40, 50)]
    [state] = mirror_status(settings)
    assert state.holes == ((10, 22, "transaction"), (32, 44, "transaction"))
    [found] = audit(settings)
    assert (found.records, found.different) == (30, 0)


# -- what is killed, and what is not answered --------------------------------------------------------------------------


@pytest.mark.parametrize("version", TARGETS)
def test_processes_that_are_killed_again_and_again_copy_each_record_once(
    version: str, kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters(version, 1)
    source.create_topic(topic, partitions=2)
    settings = old(topic, source, target, topic)
    arguments = command(settings, "--whitelist", topic, "--slots", "4", "--rate", "300000")
    sent = 0
    processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        for round_number in range(4):
            for partition in (0, 1):
                send(source, topic, numbered(sent, sent + 2_000, 200), partition)
            sent += 2_000
            victim = round_number % 2
            wait_until(lambda at=sent - 2_000, of=victim: end_at(target, topic, of) > at, WAIT_S, "some records")
            processes[victim].send_signal(signal.SIGKILL)
            processes[victim].wait(WAIT_S)
            processes[victim] = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    finally:
        for process in processes:
            process.kill()
            process.wait(WAIT_S)
    Mirror(old(topic, source, target, topic, until_end=True)).run()
    for partition in (0, 1):
        assert values(target, topic, partition) == numbered(0, sent, 200)
    audited = run_command(command(settings, verb="audit"))
    assert (audited.returncode, audited.stderr) == (0, "")
    assert "both sides are equal" in audited.stdout


@pytest.mark.parametrize("version", TARGETS)
def test_brokers_of_the_target_that_are_killed_while_it_copies_cost_no_record_and_repeat_none(
    version: str, kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source = kafka_clusters("3.9.2", 1)
    source.create_topic(topic)
    with KafkaCluster(version, 2, settings={"replica.lag.time.max.ms": 3000}) as target:
        target.create_topic(topic, assignment={0: [0, 1]})
        with running(old(topic, source, target, topic, rate_bytes=100_000)) as mirror:
            send(source, topic, numbered(0, 8_000, 200))
            for at in (1_000, 3_000, 5_000):
                wait_until(lambda at=at: end_at(target, topic) >= at, WAIT_S, f"{at} records", state=mirror.figures)
                wait_until(lambda: in_sync(target, topic) == {0, 1}, WAIT_S, "a replica that can lead")
                victim = target.leader(topic, 0)
                target.kill(victim)
                wait_until(lambda victim=victim: target.leader(topic, 0) not in (None, victim), WAIT_S, "a new leader")
                target.start(victim)
            wait_until(lambda: end_at(target, topic) >= 8_000, WAIT_S, "all records", state=mirror.figures)
        assert values(target, topic) == numbered(0, 8_000, 200)


def test_requests_whose_answers_are_lost_are_found_in_the_log_and_not_sent_again(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source = kafka_clusters("3.9.2", 1)
    source.create_topic(topic)
    lost: list[int] = []

    def swallow(exchange: Exchange) -> bytes | None:
        is_copy = topic.encode() in exchange.request and b"__zkconsumer" not in exchange.request
        if exchange.api != PRODUCE or not is_copy or len(lost) == 5:
            return None
        lost.append(exchange.correlation_id)
        threading.Timer(0.2, proxy.drop).start()
        return RawReply(b"")

    target = KafkaCluster("0.8.2.2", 1)
    with TcpProxy(("127.0.0.1", target.port(0)), rewrite=swallow) as proxy:
        target.advertise(0, proxy.port)
        with target:
            with running(old(topic, source, target, topic)) as mirror:
                for first in range(0, 3_000, 500):
                    send(source, topic, numbered(first, first + 500, 200))
                    wait_until(lambda end=first + 500: end_at(target, topic) >= end, WAIT_S, "them to be copied",
                               state=mirror.figures)  # fmt: skip
                wait_until(lambda: [each.lag for each in mirror.figures().values()] == [0], WAIT_S, "no lag",
                           state=mirror.figures)  # fmt: skip
            assert values(target, topic) == numbered(0, 3_000, 200)
            assert len(lost) == 5


@SLOW
@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
def test_leaders_and_processes_that_are_frozen_and_go_on_repeat_nothing(
    version: str, kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source = kafka_clusters("3.9.2", 1)
    source.create_topic(topic)
    send(source, topic, numbered(0, 12_000, 200))
    with KafkaCluster(version, 2, settings={"replica.lag.time.max.ms": 3000}) as target:
        target.create_topic(topic, assignment={0: [0, 1]})
        settings = old(topic, source, target, topic)
        arguments = command(settings, "--whitelist", topic, "--slots", "1", "--rate", "50000")
        processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(2)]
        try:
            for victim in processes * 2:
                wait_until(lambda: owner(target, topic) is not None, WAIT_S, "an owner of the slot")
                end = end_at(target, topic)
                wait_until(lambda end=end: end_at(target, topic) > end, WAIT_S, "a record more")
                if owner(target, topic) == victim.pid:
                    victim.send_signal(signal.SIGSTOP)
                    wait_until(lambda of=victim: owner(target, topic) not in (None, of.pid), WAIT_S, "another owner")
                    victim.send_signal(signal.SIGCONT)
                leader = target.leader(topic, 0)
                target.pause(leader)
                wait_until(lambda of=leader: target.leader(topic, 0) not in (None, of), WAIT_S, "another leader")
                target.resume(leader)
        finally:
            for process in processes:
                process.kill()
                process.wait(WAIT_S)
        Mirror(replace(settings, until_end=True)).run()
        assert values(target, topic) == numbered(0, 12_000, 200)
        [found] = audit(settings)
        assert (found.records, found.different) == (12_000, 0)


@SLOW
@pytest.mark.parametrize("version", ["0.8.2.2", "0.10.2.2"])
def test_what_an_unclean_election_has_cut_off_on_the_target_is_copied_again(
    version: str, kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source = kafka_clusters("3.9.2", 1)
    source.create_topic(topic)
    cuts = {"unclean.leader.election.enable": True, "replica.lag.time.max.ms": 2000}
    with KafkaCluster(version, 2, settings=cuts) as target:
        target.create_topic(topic, assignment={0: [0, 1]})
        send(source, topic, numbered(0, 100))
        with running(old(topic, source, target, topic)) as mirror:
            wait_until(lambda: end_at(target, topic) == 100, WAIT_S, "100 records", state=mirror.figures)
            target.kill(1)
            send(source, topic, numbered(100, 200))
            wait_until(lambda: [each.position for each in mirror.figures().values()] == [200], WAIT_S, "200 records",
                       state=mirror.figures)  # fmt: skip
            target.kill(0)
            target.start(1)
            wait_until(lambda: target.leader(topic, 0) == 1, WAIT_S, "the stale replica to lead")
            target.start(0)
            send(source, topic, numbered(200, 300))
            wait_until(lambda: end_at(target, topic) >= 300, WAIT_S, "300 records", state=mirror.figures)
        assert values(target, topic) == numbered(0, 300)


def owner(target: KafkaCluster, name: str) -> int | None:
    """The process that has the only slot of a mirror; None if there is none now."""
    try:
        data, _ = target.client.get(f"/zkconsumer/mirrors/{name}/slots/0")
    except NoNodeError:
        return None
    return int(data.decode().split("-")[-2])


# -- what is found, and what is refused --------------------------------------------------------------------------------


def test_a_request_that_is_stored_twice_is_named_and_the_lane_stops(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    settings = old(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    send(target, topic, numbered(12, 20))  # what a frozen broker does that stores a request late
    send(source, topic, numbered(20, 60))
    for _ in range(2):
        with pytest.raises(RepeatedRequest, match=f"{topic}/0: one request was stored twice: offsets 20 to 27 repeat "
                                                  "the records at 12 to 19"):  # fmt: skip
            Mirror(settings).run()
    assert values(target, topic) == [*numbered(0, 20), *numbered(12, 20)]


def test_a_request_that_is_stored_late_while_the_lane_runs_is_named(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.10.2.2", 1)
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    with running(old(topic, source, target, topic)) as mirror:
        wait_until(lambda: end_at(target, topic) == 20, WAIT_S, "20 records", state=mirror.figures)
        send(target, topic, numbered(12, 20))
        send(source, topic, numbered(20, 60))
        wait_until(lambda: any(each.failure for each in mirror.figures().values()), WAIT_S, "the lane to stop",
                   state=mirror.figures)  # fmt: skip
        [figures] = mirror.figures().values()
    assert isinstance(figures.failure, RepeatedRequest)
    assert "offsets 20 to 27 repeat the records at 12 to 19" in str(figures.failure)


def test_another_writer_on_the_target_is_named_and_nothing_is_written_after_it(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    settings = old(topic, source, target, topic, until_end=True)
    Mirror(settings).run()
    send(target, topic, [b"foreign"])
    send(source, topic, numbered(20, 40))
    with pytest.raises(AnotherWriter, match=f"{topic}/0: another writer: expected at offset 20 the record at offset 20 "
                                            f"of {topic}/0, found another record"):  # fmt: skip
        Mirror(settings).run()
    assert values(target, topic) == [*numbered(0, 20), b"foreign"]


def test_headers_stop_the_lane_after_what_comes_before_them_and_the_plan_says_so(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic)
    settings = old(topic, source, target, topic, until_end=True)
    send(source, topic, numbered(0, 10))
    Mirror(settings).run()
    send(source, topic, numbered(10, 20))
    with Producer(ProducerConfig(metadata_broker_list=servers_of(source))) as producer:
        producer.send(topic, b"with", partition=0, headers=[("trace", b"1")])
    with pytest.raises(HeadersRefused, match=rf"{topic}/0 at offset 20: the record has headers \(trace\)"):
        Mirror(settings).run()
    assert values(target, topic) == numbered(0, 20)
    elsewhere = replace(settings, rules=TopicRules(prefix="planned."))
    [planned] = plan(elsewhere)
    assert f"{topic}/0 at offset 20: the record has headers (trace)" in planned.findings[0]


def test_targets_are_named_as_their_version_needs_it(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.10.2.2", 1)
    source.create_topic(topic)
    with pytest.raises(MirrorRefused, match=r"is of Kafka 0\.10 or earlier, without sequence numbers") as found:
        plan(settings_of(topic, source, target, topic))
    assert "--to-zookeeper" in found.value.remedy
    with pytest.raises(MirrorRefused, match=r"is of Kafka 0\.11 or later") as found:
        plan(old(topic, target, source, topic))
    assert "--to-brokers" in found.value.remedy
    with pytest.raises(MirrorRefused, match="zstd"):
        plan(old(topic, source, target, topic, compression="zstd"))


def test_processes_that_start_together_share_the_slots_and_make_each_topic_once(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic, partitions=4)
    for partition in range(4):
        send(source, topic, numbered(0, 50), partition)
    arguments = command(old(topic, source, target, topic), "--whitelist", topic, "--until-end")
    processes = [subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(process.communicate(timeout=WAIT_S)[1], process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0, 0], ended
    for partition in range(4):
        assert values(target, topic, partition) == numbered(0, 50)


def test_the_oldest_targets_are_refused(
    kafka_clusters: Callable[[str, int], KafkaCluster], embedded_clusters: Callable[[int, str], EmbeddedCluster],
    topic: str,
) -> None:  # fmt: skip
    source = kafka_clusters("3.9.2", 1)
    for target, name in ((kafka_clusters("0.8.0", 1), r"Kafka 0\.8\.0, whose topics have no settings"),
                         (embedded_clusters(1, "0.7"), r"Kafka 0\.7")):  # fmt: skip
        with pytest.raises(MirrorRefused, match=name) as found:
            plan(old(topic, source, target, topic))
        assert "the oldest targets are of Kafka 0.8.1" in found.value.remedy


def test_partitions_that_the_source_gets_are_made_on_the_target_and_copied(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic)
    settings = old(topic, source, target, topic, until_end=True)
    send(source, topic, numbered(0, 5))
    Mirror(settings).run()
    BrokerAdmin(servers_of(source)).grow_topic(topic, 2)
    send(source, topic, numbered(5, 10), 1)
    Mirror(settings).run()
    assert values(target, topic, 1) == numbered(5, 10)


def test_a_target_that_was_upgraded_goes_on_with_sequence_numbers(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source = kafka_clusters("3.9.2", 1)
    source.create_topic(topic)
    send(source, topic, numbered(0, 50))
    with KafkaCluster("0.10.2.2", 1, settings={"offsets.topic.replication.factor": 1}) as target:
        Mirror(old(topic, source, target, topic, until_end=True)).run()
        target.stop(0)
        target.version = target.brokers[0].version = "0.11.0.3"
        target.start(0)
        wait_until(lambda: end_at(target, topic) == 50, WAIT_S, "the broker of 0.11 to have the log")
        send(source, topic, numbered(50, 90))
        settings = settings_of(topic, source, target, topic, until_end=True)
        for end in (90, 120):
            Mirror(settings).run()
            assert values(target, topic) == numbered(0, end)
            send(source, topic, numbered(end, 120))
        [state] = mirror_status(settings)
        assert (state.position, state.runs, state.holes) == (120, 2, ())


def test_the_commands_name_the_target_by_its_zookeeper_and_say_what_is_promised(
    kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    source, target = kafka_clusters("3.9.2", 1), kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic, config={"retention.ms": 3_600_000, "min.compaction.lag.ms": 5})
    send(source, topic, numbered(0, 30))
    settings = old(topic, source, target, topic)
    planned = run_command(command(settings, "--whitelist", topic, verb="plan"))
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "retention.ms=3600000" in planned.stdout
    assert "min.compaction.lag.ms=" not in planned.stdout, "Kafka 0.8 does not know it"
    assert "is made without min.compaction.lag.ms, which the target refuses" in planned.stdout
    ran = run_command(command(settings, "--whitelist", topic, "--until-end"))
    assert ran.returncode == 0, ran.stderr
    state = run_command(command(settings, verb="status"))
    assert state.returncode == 0
    for each in (planned, state):
        assert "the target has no sequence numbers" in each.stdout
    audited = run_command(command(settings, verb="audit"))
    assert (audited.returncode, "both sides are equal" in audited.stdout) == (0, True)
    assert values(target, topic) == numbered(0, 30)
