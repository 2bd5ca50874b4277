"""Groups on Kafka 0.7, alone and with Java members: exact positions.

Run on embedded brokers, and on real ones where their jar is given; Java members need it on both.
"""

from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Callable

import pytest
from consuming_07 import PARTITIONS, fill, member, offset_of, take
from kafka_07 import Both, entry, log_files, needs_jar_07, produce_07, send_set

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import TopicPartition
from zkconsumer import Blacklist, Consumer, ConsumerConfig, ConsumerConnector, Whitelist
from zkconsumer.errors import CommitFailed, ConsumerTimeout, PartitionStopped
from zkconsumer.fetching import fetch_state
from zkconsumer.testing import JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


def compressed(values: list[bytes], codec: str = "gzip") -> bytes:
    return bytes(KAFKA07.encode_messages(values, codec, None, None))


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_group_reads_everything_once_and_goes_on_where_it_ended(cluster: Both, topic: str, fresh_group: str) -> None:
    first = fill(cluster, topic, 20)
    with member(cluster, fresh_group, {topic: 2}) as (one, two):
        got = [*take(one, 40), *take(two, 40)]
    assert {message.value for message in got} == first
    second = fill(cluster, topic, 5, first=20)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        assert {message.value for message in take(stream, 20)} == second
        with pytest.raises(ConsumerTimeout):
            next(stream)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_entries_are_committed_as_a_whole(cluster: Both, topic: str, fresh_group: str, codec: str) -> None:
    data = compressed([b"a", b"b", b"c"], codec)
    send_set(cluster, topic, "0-0", data)
    send_set(cluster, topic, "0-0", data)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        got = take(stream, 4)
        assert [message.offset for message in got] == [0, 0, 0, len(data)]
        assert [message.index for message in got] == [0, 1, 2, 0]
    # The fourth message is done, and its entry is not.
    assert offset_of(cluster, fresh_group, topic, "0-0") == len(data)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        assert [message.value for message in take(stream, 3)] == [b"a", b"b", b"c"]
    assert offset_of(cluster, fresh_group, topic, "0-0") == 2 * len(data)


def test_a_position_within_an_entry_is_not_committed(cluster: Both, topic: str, fresh_group: str) -> None:
    """As by `offset + 1`, the habit of later generations."""
    data = compressed([b"a", b"b", b"c"])
    send_set(cluster, topic, "0-0", data)
    send_set(cluster, topic, "0-0", data)
    place = TopicPartition(topic, "0-0")
    config = ConsumerConfig(
        cluster.zookeeper_connect,
        fresh_group,
        auto_offset_reset="smallest",
        auto_commit_enable=False,
        consumer_timeout_ms=10_000,
    )
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        message = take(stream, 5)[-1]
        with pytest.raises(CommitFailed, match=f"position {len(data) + 1} is inside the entry from {len(data)} to"):
            connector.commit_offsets({place: message.offset + 1})
        connector.commit_offsets()
        assert offset_of(cluster, fresh_group, topic, "0-0") == len(data), "the entry is not done"
        connector.commit_offsets({place: next(stream).next_offset})
        assert offset_of(cluster, fresh_group, topic, "0-0") == 2 * len(data)


def test_a_large_message_is_asked_for_with_its_own_size(cluster: Both, topic: str, fresh_group: str) -> None:
    value = bytes(200_000)
    produce_07(cluster.port(0), topic, 0, [b"small", value, b"behind"])
    with member(cluster, fresh_group, {topic: 1}, fetch_message_max_bytes=1000) as (stream,):
        assert [message.value for message in take(stream, 3)] == [b"small", value, b"behind"]


def test_an_idle_group_sends_few_requests_and_still_gets_messages(cluster: Both, topic: str, fresh_group: str) -> None:
    with member(cluster, fresh_group, {topic: 1}, fetcher_backoff_ms=500) as (stream,):
        with pytest.raises(ConsumerTimeout):
            next(stream)
        fill(cluster, topic, 1)
        take(stream, 4)


# -- positions that are no starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [1, 4, 9, 37, 60])
def test_a_stored_position_within_an_entry_leads_to_the_start_of_that_entry(
    cluster: Both, topic: str, fresh_group: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    produce_07(cluster.port(0), topic, 0, [b"first", b"second", b"third"])
    send_set(cluster, topic, "0-0", compressed([b"x" * 50, b"y" * 50]))
    starts = [0, 15, 31, 46]
    entry = max(start for start in starts if start <= position)
    cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0-0", str(position).encode(), makepath=True)
    wanted = [b"first", b"second", b"third", b"x" * 50, b"y" * 50][starts.index(entry) :]
    with caplog.at_level(logging.WARNING), member(cluster, fresh_group, {topic: 1}) as (stream,):
        assert [message.value for message in take(stream, len(wanted))] == wanted
    assert f"position {position} is inside the entry from {entry} to" in caplog.text


def test_a_damaged_entry_is_not_taken_for_a_wrong_position(cluster: Both, topic: str, fresh_group: str) -> None:
    end = produce_07(cluster.port(0), topic, 0, [b"before"])
    produce_07(cluster.port(0), topic, 0, [b"damaged"])
    produce_07(cluster.port(0), topic, 0, [b"behind"])
    cluster.stop(0)
    [log] = log_files(cluster, 0, f"{topic}-0")
    data = bytearray(log.read_bytes())
    data[end + 10] ^= 1
    log.write_bytes(bytes(data))
    cluster.start(0)
    cluster.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0-0", str(end).encode(), makepath=True)
    with member(cluster, fresh_group, {topic: 1}, on_message_error="skip") as (stream,):
        assert [message.value for message in take(stream, 1)] == [b"behind"]


def test_beyond_the_end_the_policy_decides(
    cluster: Both, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_state, "DOUBT_S", 0.5)
    produce_07(cluster.port(0), topic, 0, [b"only"])
    path = f"/consumers/{fresh_group}/offsets/{topic}/0-0"
    cluster.client.create(path, b"1000", makepath=True)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        assert [message.value for message in take(stream, 1)] == [b"only"]
    cluster.client.set(path, b"1000")
    settings = {"kafka_generation": "0.7", "auto_offset_reset": "raise"}
    stops = pytest.raises(PartitionStopped, match="1000")
    with member(cluster, fresh_group, {topic: 1}, **settings) as (stream,), stops:
        take(stream, 1)


# -- brokers that come and go -----------------------------------------------------------------------------------------


@pytest.mark.catalogue("H6")
def test_a_broker_that_comes_back_is_read_on(cluster: Both, topic: str, fresh_group: str) -> None:
    fill(cluster, topic, 3)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        take(stream, 12)
        cluster.kill(1, expire=True)
        fill(cluster, topic, 1, first=3, partitions=["0-0", "0-1"])
        take(stream, 2)
        cluster.start(1)
        more = fill(cluster, topic, 1, first=3, partitions=["1-0", "1-1"])
        assert {message.value for message in take(stream, 2)} == more


@pytest.mark.parametrize("policy", ["smallest", "largest"])
@pytest.mark.parametrize(
    ("values", "said"),
    [([b"new 1", b"new 2", b"new 3"], "has other bytes"), ([b"new 1"], "is no longer in the log"),
     ([], "is no longer in the log")],
    ids=["other", "shorter", "empty"],
)  # fmt: skip
def test_a_broker_that_comes_back_with_another_log_is_named_and_read_from_the_start_of_that(
    cluster: Both, topic: str, fresh_group: str, caplog: pytest.LogCaptureFixture, values: list[bytes], said: str,
    policy: str,
) -> None:  # fmt: skip
    with (
        caplog.at_level(logging.WARNING),
        member(cluster, fresh_group, {topic: 1}, auto_offset_reset=policy) as (stream,),
    ):
        produce_07(cluster.port(1), topic, 0, [b"old 1", b"old 2"])
        take(stream, 2)
        with pytest.raises(ConsumerTimeout):
            next(stream)
        cluster.stop(1)
        [log] = log_files(cluster, 1, f"{topic}-0")
        if values:
            log.write_bytes(b"".join(map(entry, values)))
        else:
            shutil.rmtree(log.parent)
        cluster.start(1)
        if not values:
            values = [b"first"]
            produce_07(cluster.port(1), topic, 0, values)
        assert [message.value for message in take(stream, len(values))] == values
    assert "broker 1 has another log than before: the entry from 15 to 30, which was delivered, " + said in caplog.text


# -- beside Java ------------------------------------------------------------------------------------------------------


@needs_jar_07
def test_partitions_are_handed_over_both_ways_at_the_exact_next_message(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    first = fill(cluster, topic, 10)
    seen: list[bytes] = []
    with member(cluster, fresh_group, {topic: 1}, consumer_id="a") as (stream,):
        seen += [message.value for message in take(stream, 40)]
        with pytest.raises(ConsumerTimeout):
            next(stream)
        with JavaMember(cluster, fresh_group, topics={topic: 1}, consumer_id="b") as java:
            assert java.wait_owned(2) == [(topic, "1-0"), (topic, "1-1")]
            second = fill(cluster, topic, 10, first=10)
            seen += [message.value for message in take(stream, 20)]
            java.wait_messages(20)
            java.stop()
            seen += [each.value for each in java.messages if each.value is not None]
            assert java.gave_up == 0
        third = fill(cluster, topic, 10, first=20)
        seen += [message.value for message in take(stream, 40)]
    assert sorted(seen) == sorted(first | second | third)


@needs_jar_07
def test_a_java_member_takes_over_from_a_dead_one_of_ours_and_ours_from_a_dead_java_one(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    values = fill(cluster, topic, 10)
    java = JavaMember(cluster, fresh_group, topics={topic: 1}, consumer_id="java")
    with java:
        java.wait_messages(40)
        wait_until(lambda: offset_of(cluster, fresh_group, topic, "0-0") > 0, 20, "its commit")
        java.kill()
        with member(cluster, fresh_group, {topic: 1}) as (stream,):
            values |= fill(cluster, topic, 5, first=10)
            missing = values - {each.value for each in java.messages}
            while missing:  # what Java had not committed is delivered again: more than what is missing
                missing -= {take(stream, 1)[0].value}


@needs_jar_07
def test_a_java_member_ends_at_a_position_within_an_entry_and_commits_it_again(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    """What the model of the simulator does (`tests/simulator/java_delivery_07.py`), and then a member of ours."""
    values = fill(cluster, topic, 5)
    offsets = f"/consumers/{fresh_group}/offsets/{topic}"
    cluster.client.create(f"{offsets}/0-0", b"5", makepath=True)
    settings = {"auto.commit.interval.ms": 200}
    with JavaMember(cluster, fresh_group, topics={topic: 1}, consumer_id="java", settings=settings) as java:
        wait_until(lambda: java.stream_errors, 20, "the exception of its stream")
        assert "InvalidMessageSizeException" in java.stream_errors[0]
        assert {each.partition for each in java.messages} <= {"0-1", "1-0", "1-1"}
        cluster.client.set(f"{offsets}/0-0", b"0")
        wait_until(lambda: offset_of(cluster, fresh_group, topic, "0-0") == 5, 20, "its commit")
        assert java.wait_owned(4) == [(topic, name) for name in PARTITIONS]
        java.kill()
        with member(cluster, fresh_group, {topic: 1}) as (stream,):
            missing = {value for value in values if value.startswith(b"0-0")}
            while missing:
                missing -= {take(stream, 1)[0].value}


@needs_jar_07
def test_the_history_of_a_java_member_numbers_messages_within_entries(
    cluster: Both, topic: str, fresh_group: str
) -> None:
    data = compressed([b"a", b"b", b"c"])
    for one in (data, data, compressed([b"d"])):
        send_set(cluster, topic, "0-0", one)
    produce_07(cluster.port(0), topic, 0, [b"e"])
    with JavaMember(cluster, fresh_group, topics={topic: 1}) as java:
        java.wait_messages(8)
        starts = [0, len(data), 2 * len(data), 2 * len(data) + len(compressed([b"d"]))]
        got = [event.offset for event in java.events() if event.kind == "deliver"]
        assert got == [0, 1, 2, starts[1], starts[1] + 1, starts[1] + 2, *starts[2:]]
        reported = [each.offset for each in java.messages]
        assert reported[:6] == [0, 0, starts[1], starts[1], starts[1], starts[2]]


@needs_jar_07
@pytest.mark.parametrize("filters", [("clicks.*", "whitelist"), ("other.*", "blacklist")])
def test_filters_are_shared_with_java_members(
    cluster: Both, fresh_group: str, fresh_topic: Callable[[], str], filters: tuple[str, str]
) -> None:
    name = fresh_topic()
    pattern, kind = (f"{name}.*", "whitelist") if filters[1] == "whitelist" else (f"(?!{name}).*", "blacklist")
    cluster.create_topic(f"{name}-1")
    fill(cluster, f"{name}-1", 2)
    config = ConsumerConfig(
        cluster.zookeeper_connect,
        fresh_group,
        auto_offset_reset="smallest",
        consumer_timeout_ms=200,
        consumer_id="a",
        fetcher_backoff_ms=50,
    )
    with ConsumerConnector(config) as connector:
        chosen = Whitelist(pattern) if kind == "whitelist" else Blacklist(pattern)
        streams = connector.create_message_streams_by_filter(chosen, 1)
        data = cluster.client.get(f"/consumers/{fresh_group}/ids/{fresh_group}_a")[0]
        assert data == (f"*1*{pattern}" if kind == "whitelist" else f"!1!{pattern}").encode()
        take(streams[0], 8)
        with pytest.raises(ConsumerTimeout):
            next(streams[0])  # nothing is in hand any more
        java = JavaMember(cluster, fresh_group, consumer_id="b", **{kind: pattern}, streams=1)  # type: ignore[arg-type]
        with java:
            java.wait_owned(2)
            cluster.create_topic(f"{name}-2")
            java.wait_owned(4)
            wait_until(lambda: len(connector.status().owned) == 4, 20, "our half of both topics")
            fill(cluster, f"{name}-2", 2)
            got = [message.value for message in take(streams[0], 4)]
            java.wait_messages(4)
            assert len({*got, *(each.value for each in java.messages)}) == 8
            java.stop()


def test_each_stream_of_a_filter_gets_its_partitions(cluster: Both, topic: str, fresh_group: str) -> None:
    """Kafka 0.7.2's own consumer gives everything to the last of them."""
    fill(cluster, topic, 3)
    config = ConsumerConfig(
        cluster.zookeeper_connect,
        fresh_group,
        auto_offset_reset="smallest",
        consumer_timeout_ms=200,
        fetcher_backoff_ms=50,
    )
    with ConsumerConnector(config) as connector:
        streams = connector.create_message_streams_by_filter(Whitelist(topic), 3)
        got = [{message.partition for message in take(stream, count)}
               for stream, count in zip(streams, (6, 3, 3), strict=True)]  # fmt: skip
    assert got == [{"0-0", "0-1"}, {"1-0"}, {"1-1"}]


def test_the_quick_start_of_kafka_07_runs(cluster: Both, topic: str, fresh_group: str) -> None:
    fill(cluster, topic, 1, partitions=["0-0"])
    config = ConsumerConfig(
        cluster.zookeeper_connect, fresh_group, auto_offset_reset="smallest", consumer_timeout_ms=10_000
    )
    with Consumer.create(config) as connector:
        [stream] = connector.createMessageStreams({topic: 1}, bytes.decode)[topic]
        assert next(stream).value == "0-0:0"
    with Consumer.create(config) as connector, pytest.raises(TypeError, match="which has no keys"):
        connector.createMessageStreams({topic: 1}, key_decoder=bytes.decode)
    assert cluster.client.get_children(f"/consumers/{fresh_group}/ids") == []


def test_it_is_one_connector_for_all_generations(cluster: Both, topic: str, fresh_group: str) -> None:
    fill(cluster, topic, 1)
    with member(cluster, fresh_group, {topic: 1}) as (stream,):
        message = take(stream, 1)[0]
    assert TopicPartition(message.topic, message.partition) in {TopicPartition(topic, name) for name in PARTITIONS}
    assert gzip.decompress(gzip.compress(message.value)) == message.value
