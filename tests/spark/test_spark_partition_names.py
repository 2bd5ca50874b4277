"""Names of partitions of Kafka 0.7 in JSON and in the column `partition`, and the options that Kafka 0.7 refuses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.errors import ColumnsRefused, OptionRefused, PlanningFailed
from zkconsumer.spark.options.offsets_json import (
    PARTITIONS_OF_A_BROKER,
    are_byte_positions,
    broker_of,
    column_value,
    nested_offsets,
    parse_assignment,
    parse_offsets,
    parse_partition,
)
from zkconsumer.spark.options.options import batch_options, stream_options
from zkconsumer.spark.reading.cluster_offsets import refuse_unfit
from zkconsumer.spark.schema import chosen_columns, schema_text

PLACE = {"zookeeper.connect": "zk:2181", "subscribe": "t", "kafka.generation": "0.7"}


@given(st.integers(0, 32767), st.integers(0, PARTITIONS_OF_A_BROKER - 1))
def test_the_column_can_be_turned_back_into_broker_and_number(broker: int, number: int) -> None:
    value = column_value(f"{broker}-{number}")
    assert 0 <= value < 2**31
    assert divmod(value, PARTITIONS_OF_A_BROKER) == (broker, number)
    assert broker_of(f"{broker}-{number}") == broker


@pytest.mark.parametrize("partition", ["32768-0", "0-65536", "168430081-0"])
def test_what_does_not_fit_into_the_column_is_refused(partition: str) -> None:
    with pytest.raises(ValueError, match=f"partition {partition} does not fit .* brokers up to 32767 and numbers"):
        column_value(partition)


@pytest.mark.parametrize("text", ["", "-1", "0-", "-0", "01-0", "0-01", "0-1-2", "a-0", " 0-1", "9999999999-0"])
def test_other_texts_name_no_partition(text: str) -> None:
    assert parse_partition(text) is None


def test_json_of_both_generations() -> None:
    offsets = {TopicPartition("t", "0-10"): 1, TopicPartition("t", "0-2"): 2, TopicPartition("t", "10-0"): 3}
    assert parse_offsets('{"t": {"0-2": 2, "10-0": 3, "0-10": 1}}') == offsets
    assert nested_offsets(offsets) == {"t": {"0-10": 1, "0-2": 2, "10-0": 3}}
    assert parse_assignment('{"t": ["1-0", "0-0"]}') == (("t", "0-0"), ("t", "1-0"))
    assert are_byte_positions(offsets)
    assert not are_byte_positions([TopicPartition("t", 7)])


@pytest.mark.parametrize("text", ['{"t": {"0": 1, "0-0": 1}}', '{"t": {"0": 1}, "u": {"0-0": 1}}'])
def test_json_of_two_generations_at_once_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"t/0 and [tu]/0-0 are of two generations of Kafka, and no cluster has both"):
        parse_offsets(text)


@pytest.mark.parametrize("text", ['{"t": ["0"]}', '{"t": ["0-00"]}', '{"t": [true]}', '{"t": [0, "0-0"]}'])
def test_an_assignment_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"0-3|two generations"):
        parse_assignment(text)


def test_the_options_alone_decide_about_the_columns() -> None:
    assert schema_text(with_places=True) == schema_text() + ", broker int, entry_index int"
    assert schema_text(True, True).endswith("broker int, entry_index int, error string")
    assert chosen_columns([("entry_index", "int", True)], with_places=True) == ("entry_index",)
    with pytest.raises(ColumnsRefused, match=re.escape("kafka.generation=0.7")):
        chosen_columns([("broker", "int", True)])


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("maxRecordsPerPartition", "10", "offsets of Kafka 0.7 count bytes.*set maxBytesPerPartition"),
    ("filterPushdown", "true", "may cut inside an entry"),
    ("kafka.generation", "0.9", "0.9"),
])  # fmt: skip
def test_options_that_have_no_meaning_there_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(OptionRefused, match=f"option {name}: .*{reason}"):
        batch_options({**PLACE, name: value})


def test_an_assignment_by_number_is_refused_there() -> None:
    with pytest.raises(OptionRefused, match='"0-3" is number 3 on broker 0'):
        batch_options({"zookeeper.connect": "zk", "kafka.generation": "0.7", "assign": '{"t": [3]}'})


def test_a_stream_has_the_same_options() -> None:
    assert stream_options({**PLACE, "maxOffsetsPerTrigger": "1000"}).config.kafka_generation == "0.7"


@pytest.mark.parametrize(("partition", "generation"), [("0-0", "auto"), ("0-0", "0.8"), (3, "0.7")])
def test_a_topic_of_another_generation_is_refused(partition: int | str, generation: str) -> None:
    refused = f"topic 't' has partition {partition}, and kafka.generation is {generation}: that is another generation"
    with pytest.raises(PlanningFailed, match=re.escape(refused)):
        refuse_unfit("t", [partition], generation)


def test_a_broker_whose_number_is_too_large_is_refused_before_anything_is_read() -> None:
    with pytest.raises(PlanningFailed, match="topic 't': partition 168430081-0 does not fit into the column"):
        refuse_unfit("t", ["0-0", "168430081-0"], "0.7")
