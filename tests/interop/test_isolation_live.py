"""One bad message, one bad partition, one bad answer, one slow stream: nothing else is affected.

The brokers are real; a proxy in front of them changes single fetch answers to the client under test.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    member,
    offsets_of,
    position,
    preset_offset,
    produce,
    read,
    stored,
    texts,
)
from fetch_faults import FetchFaults, with_error, with_flipped_byte, with_offset, with_size

from simpleconsumer.errors import CrcMismatch, DamagedOffset
from zkconsumer import ConsumerConnector, ConsumerTimeout, KafkaStream, PartitionStopped
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.proxy.kafka_frames import RawReply
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
MIB = 1024 * 1024
MEMBER_WITH_BACKLOG = Path(__file__).with_name("member_with_backlog.py")


@dataclass
class Site:
    """One broker behind a proxy that changes fetch answers."""

    cluster: KafkaCluster
    proxy: TcpProxy
    faults: FetchFaults


@pytest.fixture(scope="module")
def started_site() -> Iterator[Site]:
    cluster = KafkaCluster("0.8.2.2", brokers=1)
    faults = FetchFaults()
    with TcpProxy(("127.0.0.1", cluster.port(0)), rewrite=faults) as proxy:
        cluster.advertise(0, proxy.port)
        with cluster:
            yield Site(cluster, proxy, faults)


@pytest.fixture
def site(started_site: Site) -> Iterator[Site]:
    """The site without faults, before and after."""
    started_site.faults.clear()
    yield started_site
    started_site.faults.clear()
    started_site.proxy.clear()


@pytest.fixture
def topic(site: Site, fresh_topic: Callable[[], str]) -> str:
    """Two partitions with the messages "<partition>-0" to "<partition>-9"."""
    name = fresh_topic()
    site.cluster.create_topic(name, partitions=2)
    for partition in (0, 1):
        produce(site.cluster, name, partition, [f"{partition}-{n}" for n in range(10)])
    return name


def read_with_errors(stream: KafkaStream, count: int) -> tuple[list[str], list[Exception]]:
    """The next messages as text, and what was raised on the way; the stream is silent afterwards."""
    received: list[str] = []
    errors: list[Exception] = []

    def come() -> bool:
        try:
            received.extend(texts([next(stream)]))
        except ConsumerTimeout:
            return len(received) >= count
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)
        return False

    wait_until(come, PATIENCE_S, f"{count} messages", interval_s=0.0, state=lambda: (received, errors))
    return received, errors


def of_partition(received: list[str], partition: int) -> list[int]:
    """The numbers of one partition's messages, in the order in which they came."""
    return [int(text.split("-")[1]) for text in received if text.startswith(f"{partition}-")]


def error_of(consumer: ConsumerConnector, topic: str, partition: int) -> str | None:
    """What holds a partition up, by the member's own account."""
    [found] = [each for each in consumer.status().owned if (each.topic, each.partition) == (topic, partition)]
    return found.error


# -- one bad message ---------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("G2")
def test_a_corrupt_message_is_raised_once_and_everything_else_comes(site: Site, fresh_group: str, topic: str) -> None:
    site.faults.in_pieces(fresh_group, with_flipped_byte(0, 3))
    with member(site.cluster, fresh_group) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 19)
        assert of_partition(received, 0) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert of_partition(received, 1) == list(range(10))
        [error] = errors
        assert isinstance(error, CrcMismatch)
        assert (error.topic, error.partition, error.offset, error.next_offset) == (topic, 0, 3, 4)
    assert stored(site.cluster, fresh_group, topic, 0) == b"10"


def test_a_corrupt_message_is_skipped_on_demand(
    site: Site, fresh_group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.faults.in_pieces(fresh_group, with_flipped_byte(0, 3))
    with member(site.cluster, fresh_group, on_message_error="skip") as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 19)
        assert of_partition(received, 0) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert errors == []
    assert f"{topic}/0 at 3" in caplog.text


def test_a_corrupt_message_stops_its_partition_on_demand(site: Site, fresh_group: str, topic: str) -> None:
    site.faults.in_pieces(fresh_group, with_flipped_byte(0, 3))
    with member(site.cluster, fresh_group, on_message_error="stop") as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 13)
        assert of_partition(received, 0) == [0, 1, 2]
        assert of_partition(received, 1) == list(range(10))
        assert errors == []
        assert f"{topic}/0 at 3" in (error_of(consumer, topic, 0) or "")
        assert error_of(consumer, topic, 1) is None
    assert stored(site.cluster, fresh_group, topic, 0) == b"3"


@pytest.mark.catalogue("G2a")
@pytest.mark.parametrize(
    "found", [3 - 2**63, 2**63 - 1, 2**40 + 3, 11, 10, 7, 4, 2, 0], ids=lambda found: f"says-{found}"
)
def test_a_damaged_offset_costs_one_error_and_moves_no_position(
    site: Site, fresh_group: str, topic: str, found: int
) -> None:
    site.faults.in_pieces(fresh_group, with_offset(0, 3, found))
    with member(site.cluster, fresh_group) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 19)
        assert of_partition(received, 0) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert of_partition(received, 1) == list(range(10))
        [error] = errors
        assert isinstance(error, DamagedOffset)
        assert (error.topic, error.partition, error.offset, error.next_offset) == (topic, 0, 3, 4)
        assert f"offset {found} " in str(error)
        consumer.commit_offsets()
    assert stored(site.cluster, fresh_group, topic, 0) == b"10"


def test_a_damaged_offset_at_which_an_answer_begins_is_fetched_again_before_it_is_given_up(
    site: Site, fresh_group: str, topic: str
) -> None:
    preset_offset(site.cluster, fresh_group, topic, 0, b"3")
    site.faults.in_pieces(fresh_group, with_offset(0, 3, 1))
    with member(site.cluster, fresh_group) as consumer:
        received, [error] = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 16)
        assert of_partition(received, 0) == [4, 5, 6, 7, 8, 9]
        assert isinstance(error, DamagedOffset)
        assert (error.offset, error.next_offset) == (3, 4)
        assert "offset 3 was requested, 1 came first" in str(error)
    preset_offset(site.cluster, fresh_group, topic, 0, b"3")
    site.faults.in_pieces(fresh_group, with_offset(0, 3, 1), times=1)  # on the way, and not in the log
    with member(site.cluster, fresh_group) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 7)
        assert of_partition(received, 0) == [3, 4, 5, 6, 7, 8, 9]
        assert errors == []


# -- one bad partition -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, -1, 0])
def test_broken_framing_stops_its_partition_behind_the_last_good_message(
    site: Site, fresh_group: str, topic: str, size: int
) -> None:
    site.faults.in_pieces(fresh_group, with_size(0, 4, size))
    with member(site.cluster, fresh_group, refresh_leader_backoff_ms=20) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 14)
        assert of_partition(received, 0) == [0, 1, 2, 3]
        assert of_partition(received, 1) == list(range(10))
        [error] = errors
        assert isinstance(error, PartitionStopped)
        assert (error.topic, error.partition, error.offset) == (topic, 0, 4)
        assert error_of(consumer, topic, 0)
    assert stored(site.cluster, fresh_group, topic, 0) == b"4"
    site.faults.clear()
    with member(site.cluster, fresh_group) as consumer:
        assert offsets_of(read(consumer.create_message_streams({topic: 1})[topic], 6), 0) == [4, 5, 6, 7, 8, 9]


def test_framing_that_is_broken_only_for_a_moment_costs_nothing(site: Site, fresh_group: str, topic: str) -> None:
    site.faults.in_pieces(fresh_group, with_size(0, 4, 5), times=2)
    with member(site.cluster, fresh_group, refresh_leader_backoff_ms=20) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 20)
        assert site.faults.struck == 2
        assert of_partition(received, 0) == of_partition(received, 1) == list(range(10))
        assert errors == []


@pytest.mark.parametrize("policy", ["smallest", "largest"])
@pytest.mark.parametrize("code", [1, 3, 5, 6, -1, 4711])
def test_an_error_code_holds_up_its_partition_alone_and_resets_nothing(
    site: Site, fresh_group: str, topic: str, code: int, policy: str
) -> None:
    preset_offset(site.cluster, fresh_group, topic, 0, b"4")
    preset_offset(site.cluster, fresh_group, topic, 1, b"4")
    site.faults.in_pieces(fresh_group, with_error(0, code), times=3)
    settings = {"refresh_leader_backoff_ms": 20, "auto_offset_reset": policy}
    with member(site.cluster, fresh_group, **settings) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 12)
        assert site.faults.struck == 3
        assert of_partition(received, 0) == of_partition(received, 1) == [4, 5, 6, 7, 8, 9]
        assert errors == []


def test_a_lasting_error_code_leaves_the_other_partition_flowing(site: Site, fresh_group: str, topic: str) -> None:
    site.faults.in_pieces(fresh_group, with_error(0, 6))
    with member(site.cluster, fresh_group, refresh_leader_backoff_ms=20) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        received, _ = read_with_errors(stream, 10)
        for n in range(10, 15):
            produce(site.cluster, topic, 1, [f"1-{n}"])
            received += texts(read(stream, 1))
        assert of_partition(received, 1) == list(range(15))
        assert of_partition(received, 0) == []
        wait_until(lambda: "NotLeader" in (error_of(consumer, topic, 0) or ""), PATIENCE_S, "the status to name it")
        site.faults.clear()
        assert offsets_of(read(stream, 10), 0) == list(range(10))


# -- one bad answer ----------------------------------------------------------------------------------------------------


def cut_in_the_middle(answer: bytes) -> RawReply:
    return RawReply(struct.pack(">i", len(answer)) + answer[: len(answer) // 2])


def wrong_correlation_id(answer: bytes) -> bytes:
    return b"\x7f\xff\xff\xff" + answer[4:]


def garbage_behind_the_correlation_id(answer: bytes) -> bytes:
    return answer[:4] + b"\xff" * (len(answer) - 4)


def empty_frame(answer: bytes) -> bytes:
    return b""


def impossible_length(answer: bytes) -> RawReply:
    return RawReply(b"\xff\xff\xff\xfe" + answer)


def gigantic_length(answer: bytes) -> RawReply:
    return RawReply(b"\x7f\xff\xff\xff" + answer)


def bytes_too_many(answer: bytes) -> bytes:
    return answer + b"more"


def no_answer(answer: bytes) -> RawReply:
    return RawReply(b"")


@pytest.mark.parametrize(
    "change",
    [
        cut_in_the_middle,
        wrong_correlation_id,
        garbage_behind_the_correlation_id,
        empty_frame,
        impossible_length,
        gigantic_length,
        bytes_too_many,
        no_answer,
    ],
)
def test_an_answer_that_makes_no_sense_costs_the_connection_and_no_message(
    site: Site, fresh_group: str, topic: str, change: Callable[[bytes], bytes]
) -> None:
    site.faults.in_answers(fresh_group, change, times=2)
    settings = {"refresh_leader_backoff_ms": 20, "socket_timeout_ms": 300}
    with member(site.cluster, fresh_group, **settings) as consumer:
        received, errors = read_with_errors(consumer.create_message_streams({topic: 1})[topic][0], 20)
        assert site.faults.struck == 2
        assert of_partition(received, 0) == of_partition(received, 1) == list(range(10))
        assert errors == []


@pytest.mark.catalogue("F11")
def test_an_answer_that_comes_too_late_is_never_taken_for_the_next_one(
    site: Site, fresh_group: str, topic: str
) -> None:
    with member(site.cluster, fresh_group, refresh_leader_backoff_ms=20, socket_timeout_ms=300) as consumer:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        reader.wait(20)
        accepted = site.proxy.accepted
        site.proxy.delay(0.4)
        for partition in (0, 1):
            produce(site.cluster, topic, partition, [f"{partition}-{n}" for n in range(10, 20)])
        wait_until(lambda: site.proxy.accepted > accepted + 2, PATIENCE_S, "new connections after time-outs")
        site.proxy.clear()
        received = texts(reader.wait(40))
        assert of_partition(received, 0) == of_partition(received, 1) == list(range(20))
        assert reader.errors == []


# -- one slow stream, one hot partition --------------------------------------------------------------------------------


@pytest.mark.catalogue("F9")
def test_a_stream_that_nobody_reads_does_not_stop_the_other(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, partitions=2)
    for partition in (0, 1):
        produce(site.cluster, topic, partition, [b"x" * 10_000 for _ in range(300)])
    settings = {"fetch_message_max_bytes": 50_000, "queued_max_bytes": 200_000}
    with member(site.cluster, fresh_group, **settings) as consumer:
        slow, fast = consumer.create_message_streams({topic: 2})[topic]
        assert offsets_of(read(fast, 300), 1) == list(range(300))
        assert position(consumer, topic, 0) == 0
        assert offsets_of(read(slow, 300), 0) == list(range(300))


def test_a_message_in_hand_for_long_does_not_stop_the_other_stream(site: Site, fresh_group: str, topic: str) -> None:
    let_go = threading.Event()
    with member(site.cluster, fresh_group) as consumer:
        slow, fast = consumer.create_message_streams({topic: 2})[topic]
        reader = BackgroundReader(slow, handle=lambda message: let_go.wait(PATIENCE_S))
        reader.wait(1)
        for n in range(10, 20):
            produce(site.cluster, topic, 1, [f"1-{n}"])
        assert of_partition(texts(read(fast, 20)), 1) == list(range(20))
        assert len(reader.messages) == 1
        let_go.set()
        reader.wait(10)


@pytest.mark.catalogue("J5")
def test_a_hot_partition_does_not_starve_another_of_its_stream(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, partitions=2)
    produce(site.cluster, topic, 0, [b"hot" * 300 for _ in range(2000)])
    produce(site.cluster, topic, 1, [b"rare"])
    with member(site.cluster, fresh_group, fetch_message_max_bytes=20_000) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        # Some chunks of twenty messages, of a hundred that there are.
        assert b"rare" in [message.value for message in read(stream, 400)]
        hot = read(stream, 200)[-1]
        produce(site.cluster, topic, 1, [b"rare again"])
        received = read(stream, 400)
        assert hot.partition == 0
        assert b"rare again" in [message.value for message in received]
        assert {message.partition for message in received} == {0, 1}


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.catalogue("F13")
def test_many_full_partitions_take_no_more_memory_than_the_budget(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    """80 MiB in 40 partitions; each could be asked for 1 MiB at once, and the budget is 4 MiB."""
    topic, partitions, budget = fresh_topic(), 40, 4 * MIB
    site.cluster.create_topic(topic, partitions=partitions)
    for partition in range(partitions):
        for _ in range(4):
            produce(site.cluster, topic, partition, [b"x" * 4096 for _ in range(128)])
    count = partitions * 4 * 128
    arguments = {
        "zookeeper": site.cluster.zookeeper_connect, "group": fresh_group, "topic": topic, "count": count,
        "queued_max_bytes": budget,
    }  # fmt: skip
    command = [sys.executable, str(MEMBER_WITH_BACKLOG), json.dumps(arguments)]
    output = tmp_path / "output"
    before = site.proxy.moved_bytes("down")
    child = ChildProcess("a member with a backlog", command, tmp_path / "log", output_path=output, stdin=True)
    try:
        wait_until(lambda: "joined" in output.read_text(), PATIENCE_S, "the first message", state=child.tail)
        # Empty answers go on while nothing is read; a message set would be seen.
        moved = [site.proxy.moved_bytes("down")]

        def full() -> bool:
            moved.append(site.proxy.moved_bytes("down"))
            return moved[-1] - moved[-2] < 20_000

        wait_until(full, PATIENCE_S, "fetching to pause", interval_s=0.5)
        assert moved[-1] - before < budget + 2 * MIB
        child.close_stdin()
        assert child.wait(60) == 0, child.tail()
    finally:
        child.kill()
    told = json.loads(output.read_text().splitlines()[-1])
    assert told["partitions"] == partitions
    # An answer and the chunks cut out of it exist side by side for a moment; connections and threads take a little.
    assert told["grown_bytes"] < 2 * budget + 16 * MIB, told
