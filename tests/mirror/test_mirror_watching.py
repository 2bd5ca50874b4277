"""What an operator sees of a mirror between real brokers: its lag in time, its metrics, and what its plan says."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator

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

from tests.interop.scrapes import scraped, value
from zkconsumer import Producer, ProducerConfig
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.mirror.reports import mirror_status
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


# -- figures of a process ----------------------------------------------------------------------------------------------


def test_a_running_mirror_serves_its_figures_to_prometheus(
    source: KafkaCluster, target: KafkaCluster, topic: str
) -> None:
    source.create_topic(topic)
    send(source, topic, numbered(0, 300, 100))
    arguments = command(settings_of(topic, source, target, topic), "--whitelist", topic, "--port", "0", "--rate", "4000",
                        "--progress", "1", "--json")  # fmt: skip
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
