"""What options of the Spark source are taken, and how wrong ones are refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.types import StructType

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.options.option_table import OPTIONS, find_option
from zkconsumer.spark.options.options import SourceOptions, batch_options, stream_options
from zkconsumer.spark.source import ZkConsumerSource

PLACE = {"zookeeper.connect": "zk1:2181/kafka"}


def options(**given: str) -> SourceOptions:
    """The options of a batch, with `_` for `.` where a name has one."""
    return batch_options({**PLACE, **given})


def refusal(**given: str) -> str:
    with pytest.raises(OptionRefused) as caught:
        options(**given)
    return str(caught.value)


def test_names_are_found_in_any_case() -> None:
    found = batch_options({"ZooKeeper.Connect": "zk1/kafka", "SUBSCRIBE": "clicks , views", "failondataloss": "False"})
    assert found.choice.topics == ("clicks", "views")
    assert found.fail_on_data_loss is False
    assert found.config.zookeeper_connect == "zk1/kafka"


def test_without_options_a_batch_reads_all_that_is_there() -> None:
    found = options(subscribe="clicks")
    assert (found.starting.kind, found.ending.kind if found.ending else None) == ("earliest", "latest")
    assert (found.min_partitions, found.max_records_per_partition) == (None, None)
    assert found.max_bytes_per_partition == 512 * 1024 * 1024
    assert found.fail_on_data_loss
    assert found.on_message_error == "raise"


def test_a_stream_begins_at_latest_and_has_no_end() -> None:
    found = stream_options({**PLACE, "subscribe": "clicks", "maxOffsetsPerTrigger": "1000"})
    assert (found.starting.kind, found.ending, found.max_offsets_per_trigger) == ("latest", None, 1000)
    assert found.max_bytes_per_partition is None


def test_options_travel_to_the_executors() -> None:
    found = options(subscribePattern="clicks-.*", blacklist="clicks-test", minPartitions="8")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("statingOffsets", "did you mean startingOffsets?"),
        ("kafka.sasl.mechanims", "did you mean 'sasl.mechanisms'?"),
        ("startingoffset", "did you mean startingOffsets?"),
        ("zookeper.connect", "did you mean zookeeper.connect?"),
        ("enable.auto.commit", "set commitOffsets"),
        ("kafka.session.timeout.ms", "Spark assigns partitions to tasks, which join no group"),
        ("kafka.subscribe", "it is called subscribe here"),
        ("kafka.sasl.kerberos.service.name", "SASL is PLAIN, SCRAM or OAUTHBEARER"),
        ("kafka.group.id", "to store offsets for a group in ZooKeeper: set group.id"),
        ("minOffsetPerTrigger", "did you mean minOffsetsPerTrigger?"),
        ("path", "call load() without an argument, and name the topic: set subscribe"),
        ("option.subscribe", "use `create temporary view`"),
        ("auto.offset.reset", "set startingOffsets"),
        ("group_id", "it is called group.id here"),
        ("offsets.storage", "this setting of the consumer has no effect here"),
        ("zzz", "the options are subscribe"),
    ],
)
def test_an_unknown_option_is_refused_by_name(given: str, means: str) -> None:
    text = refusal(subscribe="clicks", **{given: "1"})
    assert given in text
    assert means in text


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({}, "set one of them"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe is also set"),
        ({"subscribe": "a", "blacklist": "b"}, "subscribe is also set"),
        ({"subscribe": "a,,b"}, "option subscribe: topic ''"),
        ({"subscribe": "a b"}, "option subscribe: topic 'a b'"),
        ({"subscribePattern": "a("}, "option subscribePattern"),
        ({"assign": "[1]"}, "it looks like"),
        ({"assign": '{"a": [-1]}'}, "has partition -1"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "would be empty"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "would be empty"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "a/0 is -1 (latest)"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "a/0 is -2 (earliest)"),
        ({"subscribe": "a", "startingOffsets": "newest"}, "'newest' is not earliest, latest, group, or JSON of"),
        ({"subscribe": "a", "startingOffsets": "group"}, "needs option group.id"),
        ({"subscribe": "a", "startingOffsets": '{"b": {"0": 1}}'}, "topic 'b' is not subscribed to"),
        ({"assign": '{"a": [0]}', "startingOffsets": '{"a": {"1": 1}}'}, "a/1 is not among the assigned"),
        ({"subscribe": "a", "minPartitions": "0"}, "not a whole number from 1"),
        ({"subscribe": "a", "maxBytesPerPartition": "many"}, "such as 1048576 or 512m"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"subscribe": "a", "onMessageError": "stop"}, "is not one of raise, skip, row"),
        ({"subscribe": "a", "maxMessageBytes": "2g"}, "the largest answer allowed"),
        ({"subscribe": "a", "maxMessageBytes": "1k"}, "option maxMessageBytes: 1024 is less than 1048576"),
        (
            {"subscribe": "a", "maxMessageBytes": "1k", "fetch.message.max.bytes": "2000"},
            "option fetch.message.max.bytes: 2000 is more than maxMessageBytes, 1024",
        ),
        (
            {"subscribe": "a", "includeHeaders": "true", "kafka.generation": "0.7"},
            "option includeHeaders: messages of Kafka 0.7 have no headers",
        ),
        ({"subscribe": "a", "socket.timeout.ms": "soon"}, "option socket.timeout.ms: is 'soon'"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "it is for a stream only"),
        ({"subscribe": "a", "zookeeper.connect": "zk1:port"}, "option zookeeper.connect"),
    ],
)
def test_a_wrong_or_contradictory_option_is_refused(given: dict[str, str], means: str) -> None:
    assert means in refusal(**given)


def test_zookeeper_is_needed() -> None:
    with pytest.raises(OptionRefused, match=r"option zookeeper\.connect: is not set"):
        batch_options({"subscribe": "clicks"})


def test_a_stream_refuses_an_end() -> None:
    with pytest.raises(OptionRefused, match="endingOffsets: it is for a batch only"):
        stream_options({**PLACE, "subscribe": "a", "endingOffsets": "latest"})


def test_a_white_list_without_what_a_black_list_matches() -> None:
    choice = options(subscribePattern="clicks-.*,views", blacklist=".*-test").choice
    known = ["clicks-eu", "clicks-test", "views", "orders", "__consumer_offsets"]
    assert choice.topics_of(known, exclude_internal_topics=True) == ["clicks-eu", "views"]
    assert options(blacklist="clicks.*").choice.topics_of(known, exclude_internal_topics=True) == ["orders", "views"]


def test_a_pattern_leaves_out_what_brokers_keep_for_themselves() -> None:
    internal = ["__consumer_offsets", "__share_group_state", "__transaction_state"]
    choice = options(subscribePattern=".*").choice
    assert choice.topics_of(["clicks", *internal], exclude_internal_topics=True) == ["clicks"]
    assert choice.topics_of(["clicks", *internal], exclude_internal_topics=False) == [*internal, "clicks"]
    named = options(subscribe="__transaction_state").choice
    assert named.topics_of([], exclude_internal_topics=True) == ["__transaction_state"]


def test_a_small_fetch_goes_with_a_small_largest_message() -> None:
    given = options(subscribe="a", maxMessageBytes="1k", **{"fetch.message.max.bytes": "1024"})
    assert (given.max_message_bytes, given.config.fetch_message_max_bytes) == (1024, 1024)


def test_what_is_written_for_sparks_own_source_is_taken_where_it_is_harmless() -> None:
    assert options(subscribe="a", includeHeaders="false") == options(subscribe="a")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1500", 1500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2 min", 120_000),
        ("1H", 3_600_000),
        ("1d", 86_400_000),
        ("5ms", 5),
    ],
)
def test_a_delay_has_a_unit_or_is_in_milliseconds(text: str, milliseconds: int) -> None:
    given = stream_options({**PLACE, "subscribe": "a", "minOffsetsPerTrigger": "7", "maxTriggerDelay": text})
    assert (given.min_offsets_per_trigger, given.max_trigger_delay_ms) == (7, milliseconds)


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is neither a time such as 90s"),
        ({"maxTriggerDelay": "1.5h"}, "is neither a time such as"),
        ({"logLevel": "loud"}, "logLevel: 'loud' is not one of warning, info, debug"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger: '0' is not a whole number from 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9 is more than maxOffsetsPerTrigger, which is 8"),
    ],
)
def test_what_a_trigger_waits_for_is_checked(given: dict[str, str], means: str) -> None:
    with pytest.raises(OptionRefused, match=means):
        stream_options({**PLACE, "subscribe": "a", **given})


def test_sizes_may_have_units() -> None:
    assert options(subscribe="a", maxBytesPerPartition="64m").max_bytes_per_partition == 64 * 1024 * 1024
    assert options(subscribe="a", maxBytesPerPartition="1KB").max_bytes_per_partition == 1024
    assert options(subscribe="a", maxBytesPerPartition="off").max_bytes_per_partition is None


def test_offsets_by_json_and_of_the_group() -> None:
    found = options(
        subscribe="a", startingOffsets='{"a": {"0": 42, "1": -2}}', endingOffsets="group", **{"group.id": "billing"}
    )
    assert found.starting.each == {TopicPartition("a", 0): 42, TopicPartition("a", 1): -2}
    assert found.ending is not None
    assert (found.ending.kind, found.config.group_id) == ("group", "billing")


def test_a_time_comes_before_times_by_json_and_those_before_offsets() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 1000, "1": 2000}}'}
    by_json = options(subscribe="a", **given).starting
    assert (by_json.kind, by_json.time_ms) == ("time", None)
    assert by_json.times_ms([TopicPartition("a", 1)]) == {TopicPartition("a", 1): 2000}
    for_all = options(subscribe="a", startingTimestamp=" 3000 ", **given).starting
    assert (for_all.kind, for_all.option) == ("time", "startingTimestamp")
    assert for_all.times_ms([TopicPartition("a", 1)]) == {TopicPartition("a", 1): 3000}
    found = options(subscribe="a", endingTimestamp="3000", endingOffsetsByTimestamp='{"a": {"0": 1}}').ending
    assert found is not None
    assert (found.time_ms, found.on_no_match) == (3000, "latest")


def test_a_time_that_no_message_reaches_is_an_error_unless_the_strategy_says_otherwise() -> None:
    stream = stream_options({**PLACE, "subscribe": "a", "startingTimestamp": "1"})
    assert (stream.starting.time_ms, stream.starting.on_no_match) == (1, "error")
    lenient = options(subscribe="a", startingTimestamp="1", startingOffsetsByTimestampStrategy="Latest")
    assert lenient.starting.on_no_match == "latest"


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({"startingTimestamp": "2014-03-01"}, "option startingTimestamp: '2014-03-01' is not a time"),
        ({"startingTimestamp": "-1"}, "option startingTimestamp: '-1' is not a time"),
        ({"startingTimestamp": "1.5"}, "'1.5' is not a time"),
        ({"endingTimestamp": str(2**63)}, f"option endingTimestamp: '{2**63}' is not a time"),
        ({"startingOffsetsByTimestamp": "1000"}, "option startingOffsetsByTimestamp: '1000' names no topic"),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": -2}}'},
            "a/0 has -2: it must be a time in milliseconds since 1970",
        ),
        ({"startingOffsetsByTimestamp": '{"a": {"0": "1000"}}'}, "a/0 has '1000': it must be a time in milliseconds"),
        ({"startingOffsetsByTimestamp": '{"b": {"0": 1}}'}, "topic 'b' is not subscribed to"),
        ({"endingOffsetsByTimestamp": '{"a": {"x": 1}}'}, "has partition 'x'"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "'earliest' is not error or latest"),
        (
            {"startingTimestamp": "1000", "endingTimestamp": "999"},
            "option endingTimestamp: 999 is before startingTimestamp, which is 1000",
        ),
        # Options that are overridden are checked, too, to report typing errors.
        (
            {"startingTimestamp": "1000", "startingOffsets": "newest"},
            "'newest' is not earliest, latest, group, or JSON of",
        ),
        ({"startingTimestamp": "1000", "startingOffsetsByTimestamp": "{"}, "is not JSON"),
    ],
)
def test_a_wrong_time_is_refused_by_name(given: dict[str, str], means: str) -> None:
    assert means in refusal(subscribe="a", **given)


@pytest.mark.parametrize("name", ["endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end_by_time(name: str) -> None:
    with pytest.raises(OptionRefused, match=f"{name}: it is for a batch only"):
        stream_options({**PLACE, "subscribe": "a", name: "1"})


def test_each_option_is_documented_once() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))
    for option in OPTIONS:
        assert find_option(option.name.upper()) is option
        assert option.meaning.endswith(".")


def test_one_answer_is_waited_for_no_longer_than_patience_lasts() -> None:
    assert options(subscribe="a").config.socket_timeout_ms == 30_000
    assert options(subscribe="a", **{"kafkaConsumer.pollTimeoutMs": "5000"}).config.socket_timeout_ms == 5000
    both = {"kafkaConsumer.pollTimeoutMs": "5000", "socket.timeout.ms": "7000"}
    assert options(subscribe="a", **both).config.socket_timeout_ms == 7000


def test_the_system_chooses_the_receive_buffer_unless_an_option_does() -> None:
    assert options(subscribe="a").config.socket_receive_buffer_bytes == -1
    assert options(subscribe="a", **{"socket.receive.buffer.bytes": "9000"}).config.socket_receive_buffer_bytes == 9000


@pytest.mark.parametrize("name", ["zookeeper.auth", "ZooKeeper.SASL.Password", "zookeeper.ssl.keyfile.password"])
def test_secrets_are_refused_where_spark_may_show_them(name: str) -> None:
    with pytest.raises(OptionRefused, match=rf"^option {name.lower()}: it holds a secret, .* option config") as caught:
        ZkConsumerSource({**PLACE, "subscribe": "clicks", name: "hidden-4711"})
    assert "hidden-4711" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    ZkConsumerSource({**PLACE, "subscribe": "clicks", name: ""})


def test_what_is_wrong_with_a_stream_is_raised_by_the_first_call_of_its_reader() -> None:
    """Spark's own process for a stream hides an error of `streamReader`."""
    source = ZkConsumerSource({**PLACE, "subscribe": "clicks", "startingOffsets": "sometime"})
    reader: Any = source.streamReader(StructType().add("value", "binary"))
    calls = [reader.initialOffset, reader.getDefaultReadLimit, reader.reportLatestOffset,
             lambda: reader.latestOffset({}, None), lambda: reader.partitions({}, {}), lambda: reader.commit({}),
             lambda: reader.read(None)]  # fmt: skip
    for call in calls:
        with pytest.raises(OptionRefused, match="option startingOffsets: 'sometime' is not earliest, latest"):
            call()
    reader.stop()
