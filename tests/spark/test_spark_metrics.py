"""The lag of a stream, under the names of Spark's own Kafka source."""

from __future__ import annotations

import json
from types import SimpleNamespace

from zkconsumer.spark import source_metrics


def progress(*sources: tuple[object, object]) -> SimpleNamespace:
    """What Spark reports of sources: their positions, and the ends of their logs."""
    texts = [[None if each is None else json.dumps(each) for each in source] for source in sources]
    return SimpleNamespace(sources=[SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in texts])


def test_the_lag_is_over_the_partitions_that_the_batch_knew() -> None:
    at = {"clicks": {"0": 10, "1": 7}, "views": {"0": 5}, "@born": {"clicks": 7, "views": 8}}
    ends = {"clicks": {"0": 30, "1": 7, "2": 900}, "views": {"0": 6}, "@born": {"clicks": 7, "views": 8}}
    assert source_metrics(progress((at, ends))) == [
        {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "20", "avgOffsetsBehindLatest": "7.0"}
    ]


def test_a_log_that_was_cut_is_not_ahead() -> None:
    [figures] = source_metrics(progress(({"clicks": {"0": 10}}, {"clicks": {"0": 4}})))
    assert figures["maxOffsetsBehindLatest"] == "0"


def test_what_tells_nothing_has_no_figures() -> None:
    others = progress((None, None), ({"clicks": {"0": 1}}, None), ({}, {}), (17, {"rate": 1}), ({"a": {"0": 1}}, {}))
    assert source_metrics(others) == [{}, {}, {}, {}, {}]
    assert source_metrics(None) == []
    assert source_metrics(SimpleNamespace(lastProgress=None)) == []  # type: ignore[arg-type]


def test_a_query_stands_for_its_last_progress() -> None:
    query = SimpleNamespace(lastProgress=progress(({"clicks": {"0": 1}}, {"clicks": {"0": 3}})))
    assert source_metrics(query) == [  # type: ignore[arg-type]
        {"minOffsetsBehindLatest": "2", "maxOffsetsBehindLatest": "2", "avgOffsetsBehindLatest": "2.0"}
    ]
