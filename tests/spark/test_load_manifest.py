"""The manifest of a run, written and read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.manifest import (
    LastMessage,
    LoadedPartition,
    LoadState,
    Manifest,
    StagedFile,
    run_name,
    run_number,
)
from zkconsumer.spark.streaming.log_changes import Loss
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, number_of_cluster, number_of_topic

MANIFEST = Manifest(
    run=3,
    run_id="ab12",
    began_at="2014-03-01T10:00:00Z",
    zookeeper="zk1:2181/kafka",
    format="parquet",
    partition_by="hour",
    state=LoadState(
        StreamOffsets(
            {TopicPartition("clicks", 0): 12, TopicPartition("clicks", 10): 4, TopicPartition("später", 0): 1},
            {"clicks": 77, "später": 78},
            1_400_000_000_000,
        ),
        {
            TopicPartition("clicks", 0): LastMessage(11, None, 2**32 - 1),
            TopicPartition("clicks", 10): LastMessage(3, 0, None),
        },
        frozenset({TopicPartition("später", 1)}),
        80,
    ),
    partitions=(LoadedPartition("clicks", 0, 3, 12, 8, 901, bad=1), LoadedPartition("clicks", 10, 0, 4, 4, 5)),
    files=(StagedFile("_zkconsumer/staging/x/a.parquet", "topic=clicks/a.parquet"),),
    lost=(Loss(TopicPartition("clicks", 0), 3, 5, "deleted"), Loss(TopicPartition("gone", 1), 3, None, "gone")),
)


ID = "0f3c9d1e5a7b4c2d8e6f0a1b2c3d4e5f"
BY_BROKERS = replace(
    MANIFEST, zookeeper="", bootstrap_servers="b1:9092,b2:9092",
    state=replace(
        MANIFEST.state, topics_seen=0, by_brokers=True,
        offsets=replace(MANIFEST.state.offsets, created_zxids={"clicks": number_of_topic(ID)},
                        cluster_ms=number_of_cluster("mKBItNTPRZGwZpSZV725eQ")),
    ),
)  # fmt: skip


WITH_EPOCHS = replace(
    BY_BROKERS, state=replace(
        BY_BROKERS.state, offsets=replace(BY_BROKERS.state.offsets, epochs={TopicPartition("clicks", 10): 3})
    ),
)  # fmt: skip


EMPTY = Manifest(1, "", "", "", "json", "none", LoadState())


@pytest.mark.parametrize("manifest", [MANIFEST, BY_BROKERS, WITH_EPOCHS, EMPTY])
def test_what_is_written_is_read(manifest: Manifest) -> None:
    assert Manifest.from_json("p", manifest.to_json()) == manifest


def test_each_partition_file_loss_and_last_message_has_a_line() -> None:
    lines = MANIFEST.to_json().splitlines()
    assert sum("staging" in line for line in lines) == 1
    assert sum(line.startswith('  ["clicks"') for line in lines) == 2 + 1 + 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', MANIFEST.to_json()[:200]])
def test_what_is_none_is_refused_by_its_path(text: str) -> None:
    with pytest.raises(LoadRefused, match=r"runs/000000001\.json is not a manifest"):
        Manifest.from_json("runs/000000001.json", text)


@pytest.mark.parametrize(
    ("field", "value"),
    [("run", "3"), ("epochs", {"clicks": {"0": -1}}),
     ("ends", {"clicks": {"0": -5}}), ("tails", [["clicks", 0, "11", None, 1]]), ("cluster_ms", "x"),
     ("topics_seen", "x"), ("waiting", [["clicks", "1"]])],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_by_its_field(field: str, value: object) -> None:
    fields = {**json.loads(MANIFEST.to_json()), field: value}
    with pytest.raises(LoadRefused, match=rf"p is not a manifest of a load \(ValueError: {field}: .* is not a number"):
        Manifest.from_json("p", json.dumps(fields))


def test_a_load_that_asks_the_brokers_alone_writes_ids_in_a_format_of_its_own() -> None:
    fields = json.loads(BY_BROKERS.to_json())
    assert (fields["version"], fields["ids"], fields["cluster_id"]) == (3, {"clicks": ID}, "mKBItNTPRZGwZpSZV725eQ")
    assert not {"births", "cluster_ms"} & fields.keys()
    assert json.loads(MANIFEST.to_json())["version"] == 2, "one that earlier releases read"
    for wrong in ("7", "x"):
        with pytest.raises(LoadRefused, match="p is not a manifest of a load"):
            Manifest.from_json("p", json.dumps({**fields, "ids": {"clicks": wrong}}))


def test_epochs_of_leaders_stand_beside_the_ends_in_a_format_that_earlier_releases_refuse() -> None:
    fields = json.loads(WITH_EPOCHS.to_json())
    assert (fields["version"], fields["epochs"]) == (4, {"clicks": {"10": 3}})
    assert "epochs" not in json.loads(BY_BROKERS.to_json())


def test_a_later_format_is_refused() -> None:
    fields = {**json.loads(MANIFEST.to_json()), "version": 5}
    with pytest.raises(LoadRefused, match="version 5; this release supports 1, 2, 3, 4"):
        Manifest.from_json("p", json.dumps(fields))


def test_one_of_an_earlier_release_is_read() -> None:
    """As the first format was."""
    text = """{
 "version": 1, "run": 3, "run_id": "ab12", "began_at": "2014-03-01T10:00:00Z", "zookeeper": "zk1:2181/kafka",
 "format": "parquet", "partition_by": "hour", "ends": {"clicks": {"0": 12, "2": 0}}, "births": {"clicks": 77},
 "text": false, "partitions": [["clicks", 0, 3, 12, 8, 901, 1, 0]], "files": [["a", "b"]]
}"""
    ends = {TopicPartition("clicks", 0): 12, TopicPartition("clicks", 2): 0}
    assert Manifest.from_json("p", text).state == LoadState(StreamOffsets(ends, {"clicks": 77}))


def test_names_of_runs_sort_as_their_numbers() -> None:
    assert sorted(run_name(n) for n in (10, 9, 1)) == [run_name(n) for n in (1, 9, 10)]
    assert run_number(f"{run_name(12)}.json") == 12
    for name in ("12.json", f".{run_name(12)}.json.ab", f"{run_name(12)}.json.crc", "x"):
        assert run_number(name) is None
