"""The offsets of a stream as they stand in Spark's checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets

TOPICS = st.text("abcXYZ019_-", min_size=1, max_size=8)
OFFSETS = st.builds(
    StreamOffsets,
    st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 200)), st.integers(0, 2**63 - 1), min_size=1),
)


def test_the_shape_is_that_of_sparks_own_kafka_source_and_the_zxids_follow():
    offsets = StreamOffsets(
        {TopicPartition("views", 0): 7, TopicPartition("clicks", 10): 5, TopicPartition("clicks", 2): 6},
        {"views": 41, "clicks": 40, "gone": 3},
    )
    assert json.dumps(offsets.to_json()) == (
        '{"clicks": {"2": 6, "10": 5}, "views": {"0": 7}, "@born": {"clicks": 40, "views": 41}}'
    )


@given(OFFSETS)
def test_what_was_written_is_read_again(offsets: StreamOffsets):
    assert parse_stream_offsets(json.dumps(offsets.to_json())) == offsets
    assert parse_stream_offsets(offsets.to_json()) == offsets


@given(OFFSETS, st.randoms())
def test_equal_offsets_have_equal_text_since_spark_compares_texts(offsets: StreamOffsets, random: object):
    shuffled = list(offsets.offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(StreamOffsets(dict(shuffled)).to_json()) == json.dumps(offsets.to_json())


def test_zxids_and_cluster_are_read_again():
    offsets = StreamOffsets({TopicPartition("clicks", 0): 5}, {"clicks": 2**40}, 1_396_000_000_000)
    assert offsets.to_json() == {"clicks": {"0": 5}, "@born": {"clicks": 2**40, "@cluster": 1_396_000_000_000}}
    assert parse_stream_offsets(offsets.to_json()) == offsets


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("{", "cannot be read"),
        ("[1]", "not an object of topics"),
        ({"clicks": 5}, "'clicks' has 5"),
        ({"clicks": {"0": -1}}, "clicks/0 has -1, not an offset from 0"),
        ({"clicks": {"0": True}}, "clicks/0 has True"),
        ({"clicks": {"0": "7"}}, "clicks/0 has '7'"),
        ({"clicks": {"zero": 7}}, "partition 'zero'"),
        ({"clicks": {"0": 7}, "@born": {"clicks": "x"}}, "'@born' has values that are not numbers"),
    ],
)
def test_anything_else_is_refused_with_its_place(value: object, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        parse_stream_offsets(value)
