"""`examples/graceful_service.py`: its health over HTTP, and an end that loses and repeats nothing."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.examples.example_process import PATIENCE_S, Example, members, stored
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.loads import SteadyLoad, load
from zkconsumer.testing.waiting import wait_until

PARTITIONS = 4


def health(service: Example) -> tuple[int, dict[str, Any]]:
    """Status code and body of the health check; code 0 while nothing listens."""
    address = re.search(r"^health: (http://127\.0\.0\.1:\d+/)$", service.errors(), re.MULTILINE)
    if address is None:
        return 0, {}
    try:
        with urllib.request.urlopen(address[1], timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        return answer.code, json.load(answer)


def wait_shares(shares: dict[Example, int]) -> None:
    """Return when each service is well and has its share of the partitions."""

    def as_shared() -> bool:
        answers = [health(service) for service in shares]
        return [(code, len(body.get("owned", ()))) for code, body in answers] == [
            (200, share) for share in shares.values()
        ]

    wait_until(
        as_shared, PATIENCE_S, f"shares {list(shares.values())}",
        state=lambda: [(health(service), service.errors()) for service in shares],
    )  # fmt: skip


@pytest.fixture
def topic(small_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    small_cluster.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def serve(
    small_cluster: EmbeddedCluster, topic: str, fresh_group: str, start: Callable[..., Example]
) -> Callable[..., Example]:
    """Starts the service, with further options if need be."""

    def begin(**options: object) -> Example:
        return start(
            "graceful_service.py", zookeeper=small_cluster.zookeeper_connect, group=fresh_group, topic=topic, port=0,
            **options,
        )  # fmt: skip

    return begin


def test_a_member_that_is_restarted_under_load_loses_and_repeats_nothing(
    small_cluster: EmbeddedCluster, topic: str, fresh_group: str, serve: Callable[..., Example]
) -> None:
    with SteadyLoad(small_cluster, [topic], PARTITIONS, rate_per_s=300) as steady:
        stays, leaves = serve(), serve()
        wait_shares({stays: 2, leaves: 2})
        leaves.wait_lines(50)
        assert leaves.end() == 0, leaves.errors()
        wait_shares({stays: 4})
        returns = serve()
        wait_shares({stays: 2, returns: 2})
        returns.wait_lines(50)
        steady.stop()
    services = [stays, leaves, returns]
    wait_until(lambda: sum(len(each.lines()) for each in services) >= len(steady.acked), PATIENCE_S, "all messages")
    assert [each.end() for each in (stays, returns)] == [0, 0]
    handled = [line for each in services for line in each.lines()]
    assert sorted(handled) == sorted(f"{each.partition} {each.offset} {each.id}" for each in steady.acked)
    ends = {partition: 1 + max(e.offset for e in steady.acked if e.partition == partition) for partition in range(4)}
    assert stored(small_cluster, fresh_group, topic) == ends
    assert members(small_cluster, fresh_group) == []


def test_a_message_that_takes_too_long_is_told_by_the_health_check_and_not_committed(
    small_cluster: EmbeddedCluster, topic: str, fresh_group: str, serve: Callable[..., Example], tmp_path: Path
) -> None:
    load(small_cluster, topic, 3, partitions=[0], value=lambda partition, n: b"x" * 50_000)
    pipe = tmp_path / "full"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # nobody reads, so the second message does not get through
    try:
        service = serve(output=pipe, longest_ms=300)
        wait_until(lambda: health(service)[0] == 503, PATIENCE_S, "bad health", state=lambda: health(service))
        assert health(service)[1]["state"] == "out"
        assert service.end() == 1
        assert "a message has failed or took too long" in service.errors()
    finally:
        os.close(reader)
    assert stored(small_cluster, fresh_group, topic)[0] == 1


def test_a_message_that_fails_ends_the_service_and_is_not_committed(
    small_cluster: EmbeddedCluster, topic: str, fresh_group: str, serve: Callable[..., Example]
) -> None:
    load(small_cluster, topic, 3, partitions=[0], value=lambda partition, n: b"\xff" if n == 1 else b"text")
    service = serve()
    assert service.process.wait(PATIENCE_S) == 1
    assert service.lines() == ["0 0 text"]
    assert stored(small_cluster, fresh_group, topic)[0] == 1
