"""What an operator sees of a mirror between real brokers: its lag in time, its metrics, and what its plan says."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

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
    values,
    wait_copied,
)

from tests.client_quotas import set_quota
from tests.interop.scrapes import scraped, value
from zkconsumer import Producer, ProducerConfig
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.mirror import mirror_process
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.errors import LaneStuck, MirrorRefused
from zkconsumer.mirror.mirror_process import Mirror, plan
from zkconsumer.mirror.reports import mirror_status
from zkconsumer.mirror.sides import Both, MirrorSettings, TopicRules
from zkconsumer.mirror.topics.mirror_loops import TopicOrigins
from zkconsumer.mirror.topics.topic_copies import TopicCopies
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

HOUR_MS = 3_600_000


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


def send_rows(cluster: KafkaCluster, topic: str, *rows: tuple[bytes | None, bytes], time_ms: int | None = None) -> None:
    """Send records with these keys and values, one batch each."""
    with Producer(ProducerConfig(metadata_broker_list=servers_of(cluster), request_required_acks=-1)) as producer:
        for key, value in rows:
            producer.send(topic, value, key=key, partition=0, timestamp_ms=time_ms)


def test_a_mirror_that_is_to_end_says_why_it_cannot_start(
    source: KafkaCluster, target: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_process, "_FIRST_LOOK_S", 8.0)
    settings = settings_of(topic, source, target, topic, until_end=True)
    target.create_topic(settings.state_topic, config={"cleanup.policy": "compact", "max.message.bytes": 100})
    send(source, topic, numbered(0, 10))
    with pytest.raises(LaneStuck, match=r"the origins of topics could not be stored: .*code 10"):
        Mirror(settings).run()


# -- lag in time -------------------------------------------------------------------------------------------------------


def test_the_lag_in_time_is_the_age_of_the_oldest_record_that_is_not_copied(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True)
    send(source, topic, numbered(0, 10))
    Mirror(settings).run()
    [state] = mirror_status(settings)
    assert (state.lag, state.lag_ms) == (0, 0)
    send_rows(source, topic, (b"k", b"old"), time_ms=int(time.time() * 1000) - 3 * HOUR_MS)
    send(source, topic, numbered(10, 20))
    [state] = mirror_status(settings)
    assert state.lag == 11
    assert state.lag_ms is not None
    assert 3 * HOUR_MS <= state.lag_ms < 3 * HOUR_MS + WAIT_S * 1000
    shown = run_command(command(settings, verb="status"))
    assert shown.returncode == 1
    assert re.search(r"LAG +BEHIND .*\n.* 11 +3 h ", shown.stdout), shown.stdout


def test_the_lag_in_time_of_records_without_times_is_unknown_and_not_0(
    kafka_clusters: Callable[[str, int], KafkaCluster], target: KafkaCluster, topic: str
) -> None:
    source = kafka_clusters("0.8.2.2", 1)
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True)
    send(source, topic, numbered(0, 10))
    Mirror(settings).run()
    send(source, topic, numbered(10, 20))
    [row] = json.loads(run_command(command(settings, "--json", verb="status")).stdout)["partitions"]
    assert (row["lag"], row["lag_ms"]) == (10, None)
    Mirror(settings).run()
    [row] = json.loads(run_command(command(settings, "--json", verb="status")).stdout)["partitions"]
    assert (row["lag"], row["lag_ms"]) == (0, 0)


@pytest.mark.parametrize("pins_producers", [False, True], ids=["unpinned", "pinned"])
def test_lanes_whose_producer_is_forgotten_are_told_by_plan_status_and_audit(
    source: KafkaCluster, target: KafkaCluster, topic: str, pins_producers: bool
) -> None:
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True, pins_producers=pins_producers)
    send_rows(source, topic, (b"k", b"old"), time_ms=int(time.time() * 1000) - 72 * HOUR_MS)
    [planned] = plan(settings)
    assert ["unguarded" in note for note in planned.notes] == [] if pins_producers else [True]
    Mirror(settings).run()
    assert [each.is_guarded for each in mirror_status(settings)] == [pins_producers]
    assert [each.is_guarded for each in audit(settings)] == [pins_producers]
    assert [each.is_guarded for each in audit(settings, target_only=True)] == [pins_producers]
    shown = run_command(command(settings, verb="status")).stdout
    assert re.search(rf"BEHIND +GUARDED .*\n.* 0 s +{'yes' if pins_producers else 'no'} ", shown), shown
    [row] = json.loads(run_command(command(settings, "--json", verb="audit")).stdout)["partitions"]
    assert row["guarded"] is pins_producers
    send(source, topic, numbered(0, 10))
    Mirror(settings).run()
    assert [each.is_guarded for each in mirror_status(settings)] == [True]
    assert ("unguarded" in run_command(command(settings, verb="audit")).stdout) is False


def test_a_running_mirror_tells_the_age_of_what_it_has_in_hand(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    now_ms = int(time.time() * 1000)
    for hours in (5, 4, 3, 2):  # batches of their own, which are not merged
        send_rows(source, topic, (b"k", random.Random(hours).randbytes(20_000)), time_ms=now_ms - hours * HOUR_MS)
    ages: list[int] = []

    def is_copied(mirror: Mirror) -> bool:
        ages.extend(each.lag_ms // HOUR_MS for each in mirror.figures().values() if each.lag and each.lag_ms)
        return [(each.lag, each.lag_ms) for each in mirror.figures().values()] == [(0, 0)]

    with running(settings_of(topic, source, target, topic, rate_bytes=10_000)) as mirror:
        wait_until(lambda: is_copied(mirror), WAIT_S, "all to be copied", state=mirror.figures)
    assert ages
    assert ages == sorted(ages, reverse=True)
    assert set(ages) <= {5, 4, 3, 2}


# -- figures of a process ----------------------------------------------------------------------------------------------


def test_a_running_mirror_serves_its_figures_to_prometheus(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 300, 100))
    settings = settings_of(topic, source, target, topic)
    arguments = command(settings, "--whitelist", topic, "--port", "0", "--rate", "4000", "--progress", "1", "--json")
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"metrics are served at http://127\.0\.0\.1:(\d+)/metrics", said)
        assert found is not None, said
        port = int(found[1])
        place = {"mirror": topic, "topic": topic, "partition": "0", "target_topic": topic}
        wait_until(lambda: value(scraped(port), "mirror_copied_records_total", **place) == 300, WAIT_S, "300 records",
                   state=lambda: scraped(port))  # fmt: skip
        wait_until(lambda: value(scraped(port), "mirror_lag_messages", **place) == 0, WAIT_S, "no lag",
                   state=lambda: scraped(port))  # fmt: skip
        samples = scraped(port)
        assert [value(samples, f"mirror_{name}", **place) for name in (
            "position_offset", "source_end_offset", "lag_seconds", "guarded", "failed", "waiting"
        )] == [300, 300, 0, 1, 0, 0]  # fmt: skip
        assert (value(samples, "mirror_encoded_batches_total", **place) or 0) > 0
        assert value(samples, "mirror_partitions", mirror=topic) == 1
        assert value(samples, "mirror_throttle_milliseconds_total", mirror=topic, side="target") == 0
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_time_of_throttling_by_both_clusters_is_counted(
    source: KafkaCluster, target: KafkaCluster, topic: str, side: str
) -> None:
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, by_brokers=True)
    if side == "source":
        set_quota(source, f"mirror-{topic}", consumer_byte_rate=20_000)
    else:
        set_quota(target, f"mirror-{topic}", producer_byte_rate=20_000)
    with running(settings) as mirror:
        wait_until(lambda: set(mirror.throttled_ms()) == {"source", "target"}, WAIT_S, "the clusters to be known")
        for first in range(0, 300, 30):  # a batch that is larger than ten seconds of a quota is never delivered
            send(source, topic, numbered(first, first + 30, 1_000))
        wait_until(lambda: mirror.throttled_ms()[side] > 0, WAIT_S, f"the {side} to throttle",
                   state=lambda: (mirror.throttled_ms(), mirror.figures()))  # fmt: skip
        wait_copied(mirror, target, topic, 300)
        assert [name for name, time_ms in mirror.throttled_ms().items() if time_ms] == [side]
    assert values(target, topic) == numbered(0, 300, 1_000)


# -- what a plan says --------------------------------------------------------------------------------------------------


def planned(settings: MirrorSettings, *more: str) -> tuple[int, dict[str, Any]]:
    """The exit status of the plan, and its only topic."""
    done = run_command(command(settings, "--whitelist", settings.whitelist, "--json", *more, verb="plan"))
    assert done.stdout, done.stderr
    [found] = json.loads(done.stdout)["topics"]
    return done.returncode, found


def test_records_without_keys_are_refused_for_a_compacted_topic_with_their_offset(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 5))
    send_rows(source, topic, (None, b"no key"), (b"k", b"last"))
    settings = settings_of(topic, source, target, topic)
    assert planned(settings)[0] == 0
    status, found = planned(settings, "--topic-config", "cleanup.policy=compact")
    assert status == 4
    assert f"{topic}/0 has a record without a key at offset 5, and topic {topic} is compacted" in found["problems"][0]
    target.create_topic(topic, config={"cleanup.policy": "compact"})
    status, found = planned(settings)
    assert (status, found["action"]) == (4, "write")
    assert "without a key at offset 5" in found["problems"][0]
    dry = run_command(command(settings, "--whitelist", topic, "--dry-run"))
    assert dry.returncode == 4
    assert "without a key at offset 5" in dry.stdout
    assert end_of(target, settings.state_topic) == -1


def test_the_very_last_record_is_looked_at(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    for first in range(0, 400, 40):
        send(source, topic, numbered(first, first + 40, 1_000))
    send_rows(source, topic, (None, b"no key"))
    _, found = planned(settings_of(topic, source, target, topic), "--topic-config", "cleanup.policy=compact")
    assert "without a key at offset 400" in found["problems"][0]


@pytest.mark.parametrize("version", ["4.3.1", "1.1.1"])
def test_a_record_without_a_key_that_turns_up_later_stops_its_lane_and_is_named(
    source: KafkaCluster, target: KafkaCluster, kafka_clusters: Callable[[str, int], KafkaCluster], topic: str,
    version: str,
) -> None:  # fmt: skip
    to = target if version == "4.3.1" else kafka_clusters(version, 1)
    for cluster in (source, to):
        cluster.create_topic(topic, config={"cleanup.policy": "compact"} if cluster is to else None)
    send(source, topic, numbered(0, 5))
    with running(settings_of(topic, source, to, topic)) as mirror:
        wait_copied(mirror, to, topic, 5)
        send_rows(source, topic, (b"k", b"with key"), (None, b"no key"))
        wait_until(lambda: any(each.failure for each in mirror.figures().values()), WAIT_S, "the lane to stop",
                   state=mirror.figures)  # fmt: skip
        [figures] = mirror.figures().values()
    assert f"{topic}/0 at offset 6: topic {topic} of the target refuses it: the record has no key" in str(
        figures.failure
    )


def test_a_record_that_is_larger_than_the_target_takes_stops_its_lane_and_the_plan_has_said_so(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    target.create_topic(topic, config={"max.message.bytes": 20_000})
    send(source, topic, numbered(0, 5))
    settings = settings_of(topic, source, target, topic)
    status, found = planned(settings)
    assert status == 0
    [note] = found["notes"]
    assert re.search(
        r"takes 20000 bytes at most .* and topic .* of the source 10\d\d\d\d\d: .*max.message.bytes=10", note
    )
    with running(settings) as mirror:
        wait_copied(mirror, target, topic, 5)
        send_rows(source, topic, (b"k", b"x" * 50_000))
        wait_until(lambda: any(each.failure for each in mirror.figures().values()), WAIT_S, "the lane to stop",
                   state=mirror.figures)  # fmt: skip
        [figures] = mirror.figures().values()
    assert re.search(rf"{topic}/0 at offset 5: .* has 50\d\d\d bytes, and it takes 20000 bytes", str(figures.failure))
    assert "--topic-config max.message.bytes=50" in str(getattr(figures.failure, "remedy", ""))


def test_batches_that_are_merged_keep_to_the_limit_of_the_target(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic, config={"max.message.bytes": 9_000})
    for first in range(0, 300, 30):
        send(source, topic, numbered(first, first + 30, 200))
    Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    assert values(target, topic) == numbered(0, 300, 200)


def test_a_large_batch_of_small_records_is_cut_where_the_target_takes_less(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    target.create_topic(topic, config={"max.message.bytes": 20_000})
    send(source, topic, numbered(0, 300, 200), compression_codec="gzip")
    send(source, topic, [random.Random(number).randbytes(200) for number in range(300)])
    Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    assert len(values(target, topic)) == 600


def test_settings_of_the_source_are_copied_and_those_that_the_target_does_not_know_are_left_out(
    kafka_clusters: Callable[[str, int], KafkaCluster], source: KafkaCluster, topic: str
) -> None:
    target = kafka_clusters("0.11.0.3", 1)
    config = {"cleanup.policy": "compact,delete", "retention.ms": -1, "retention.bytes": 10_000_000,
              "segment.ms": 600_000, "compression.type": "gzip", "max.compaction.lag.ms": 90_000_000,
              "min.insync.replicas": 1, "message.timestamp.type": "LogAppendTime"}  # fmt: skip
    source.create_topic(topic, config=config)
    send(source, topic, numbered(0, 5), compression_codec="gzip")
    settings = settings_of(topic, source, target, topic, until_end=True)
    status, found = planned(settings)
    copied = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "10000000",
              "segment.ms": "600000", "compression.type": "gzip"}  # fmt: skip
    assert (status, found["config"], found["problems"]) == (0, copied, [])
    assert found["notes"][:1] == [f"topic {topic} is made without max.compaction.lag.ms, which the target refuses"]
    Mirror(settings).run()
    assert values(target, topic) == numbered(0, 5)
    status, found = planned(settings_of(topic, source, target, topic), "--prefix", "b.", "--topic-config", "nonsense=1")
    assert status == 4
    assert "nonsense" in found["problems"][0]


def test_times_that_are_not_kept_and_codecs_that_are_made_anew_are_told(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    target.create_topic(topic, config={"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"})
    send(source, topic, numbered(0, 5), compression_codec="gzip")
    status, found = planned(settings_of(topic, source, target, topic))
    assert status == 0
    times, codec = found["notes"]
    assert "message.timestamp.type=LogAppendTime: records get the time at which they are copied" in times
    assert "compression.type=zstd, and the source has batches with gzip" in codec


def test_records_that_this_mirror_has_not_written_are_told_by_the_plan(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 5))
    Mirror(settings_of(topic, source, target, topic, until_end=True)).run()
    assert planned(settings_of(topic, source, target, topic))[0] == 0
    status, found = planned(settings_of(f"{topic}-other", source, target, topic))
    assert status == 4
    assert f"{topic}/0 has offsets 0 to 4, and this mirror has not written them" in found["problems"][0]


@pytest.mark.parametrize(
    ("version", "more", "way", "reason"),
    [
        ("3.9.2", (), "whole", r"\d+ KiB on average"),
        ("3.9.2", ("--timestamps", "target"), "decoded", "--timestamps target"),
        ("0.8.2.2", (), "decoded", "messages of Kafka 0.8 to 0.10"),
    ],
)
def test_the_plan_says_which_way_a_topic_is_copied(
    kafka_clusters: Callable[[str, int], KafkaCluster], target: KafkaCluster, topic: str, version: str,
    more: tuple[str, ...], way: str, reason: str,
) -> None:  # fmt: skip
    source = kafka_clusters(version, 1)
    source.create_topic(topic, partitions=2)
    settings = settings_of(topic, source, target, topic)
    if version != "0.8.2.2":
        assert planned(settings, *more)[1]["way"] == ("decoded" if more else "unknown")
    send(source, topic, [random.Random(number).randbytes(1_000) for number in range(400)], batch_num_messages=200)
    _, found = planned(settings, *more)
    assert found["way"] == way
    assert re.fullmatch(reason, found["reason"]), found
    text = run_command(command(settings, "--whitelist", topic, *more, verb="plan")).stdout
    assert ("whole batches: " if way == "whole" else "decoded: ") in text


def test_small_batches_are_merged_and_the_plan_says_so(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 20))
    _, found = planned(settings_of(topic, source, target, topic))
    assert (found["way"], found["replication"]) == ("decoded", 1)
    assert re.fullmatch(r"batches of \d+ bytes are merged", found["reason"])


def test_topics_get_as_many_replicas_as_at_the_source_and_no_more_than_there_are_brokers(
    kafka_clusters: Callable[[str, int], KafkaCluster], source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    old = kafka_clusters("0.8.2.2", 2)
    old.create_topic(topic, assignment={0: [0, 1]})
    source.create_topic(topic)
    to = kafka_clusters("2.8.2", 2)
    assert planned(settings_of(topic, old, to, topic))[1]["replication"] == 2
    assert planned(settings_of(topic, source, to, topic))[1]["replication"] == 1
    assert planned(settings_of(topic, old, target, topic))[1]["replication"] == 1


# -- loops -------------------------------------------------------------------------------------------------------------


def topics_of(cluster: KafkaCluster, word: str) -> set[str]:
    """The topics with a word in their names, without those of mirrors."""
    [number, *_] = cluster.brokers
    with closing(MetadataReader([("127.0.0.1", cluster.port(number))], "test", WAIT_S, security=None)) as reader:
        return {name for name in reader.topics() if word in name and not name.startswith("__")}


def test_mirrors_to_and_fro_that_start_at_the_same_time_copy_no_copies(
    source: KafkaCluster, target: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_process, "_LOOK_S", 0.5)
    for cluster in (source, target):
        cluster.create_topic(f"first.{topic}")
        send(cluster, f"first.{topic}", numbered(0, 10))
    pattern = f".*{topic}"
    there = settings_of(f"{topic}-there", source, target, pattern, by_brokers=True, rules=TopicRules(prefix="a."))
    back = settings_of(f"{topic}-back", target, source, pattern, by_brokers=True, rules=TopicRules(prefix="b."))
    with running(there) as one, running(back) as other:
        wait_copied(one, target, f"a.first.{topic}", 10)
        wait_copied(other, source, f"b.first.{topic}", 10)
        for cluster in (source, target):  # these are seen later than the copies of the others
            cluster.create_topic(f"later.{topic}")
            send(cluster, f"later.{topic}", numbered(0, 10))
        wait_copied(one, target, f"a.later.{topic}", 10)
        wait_copied(other, source, f"b.later.{topic}", 10)
    own = {f"first.{topic}", f"later.{topic}"}
    assert topics_of(target, topic) == {*own, *(f"a.{name}" for name in own)}
    assert topics_of(source, topic) == {*own, *(f"b.{name}" for name in own)}


def test_three_clusters_in_a_circle_are_found_whatever_the_names(
    source: KafkaCluster, target: KafkaCluster, kafka_clusters: Callable[[str, int], KafkaCluster], topic: str
) -> None:
    third = kafka_clusters("1.1.1", 1)
    source.create_topic(topic)
    send(source, topic, numbered(0, 10))

    def step(start: KafkaCluster, end: KafkaCluster, prefix: str) -> MirrorSettings:
        return settings_of(f"{topic}-{prefix}", start, end, f".*{topic}", by_brokers=True, until_end=True,
                           rules=TopicRules(prefix=prefix))  # fmt: skip

    Mirror(step(source, target, "a.")).run()
    Mirror(step(target, third, "b.")).run()
    assert values(third, f"b.a.{topic}") == numbered(0, 10)
    with pytest.raises(MirrorRefused, match="no topic of the source matches"):
        Mirror(step(third, source, "c.")).run()
    assert topics_of(source, topic) == {topic}


def test_a_circle_that_is_closed_later_stops_the_lanes_that_run(
    source: KafkaCluster, target: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_process, "_LOOK_S", 0.5)
    source.create_topic(topic)
    send(source, topic, numbered(0, 10))
    back = settings_of(f"{topic}-back", target, source, topic, by_brokers=True)
    with running(settings_of(topic, source, target, topic, by_brokers=True)) as mirror:
        wait_copied(mirror, target, topic, 10)
        with ExitStack() as stack:
            both = Both(back, stack)
            TopicCopies(both, back).make_state_topic()
            TopicOrigins(both, back).announce({topic: topic})
        wait_until(lambda: any(each.failure for each in mirror.figures().values()), WAIT_S, "the lane to stop",
                   state=mirror.figures)  # fmt: skip
        [figures] = mirror.figures().values()
    assert re.search(rf"{topic}/0: its records come from cluster .*, which is the target", str(figures.failure))


def test_a_topic_that_a_mirror_refuses_to_write_is_a_source_for_others(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    for cluster in (source, target):
        cluster.create_topic(topic)
        send(cluster, topic, numbered(0, 10))
    with pytest.raises(MirrorRefused, match="this mirror has not written them"):
        Mirror(settings_of(topic, source, target, topic, by_brokers=True, until_end=True)).run()
    Mirror(settings_of(f"{topic}-back", target, source, topic, by_brokers=True, until_end=True,
                       rules=TopicRules(prefix="b."))).run()  # fmt: skip
    assert values(source, f"b.{topic}") == numbered(0, 10)
