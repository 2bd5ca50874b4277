"""The names in files and in the output of commands stay, whatever the code calls what it keeps under them."""

from __future__ import annotations

import json
from dataclasses import replace

from simpleconsumer.types import TopicPartition
from zkconsumer.cli.load import _as_json
from zkconsumer.spark.load.compact import CompactionReport
from zkconsumer.spark.load.compaction_history import compaction_folder
from zkconsumer.spark.load.compaction_manifest import Compaction, Replacement
from zkconsumer.spark.load.heartbeat import Heartbeat
from zkconsumer.spark.load.history import staging_folder
from zkconsumer.spark.load.iceberg import _mark
from zkconsumer.spark.load.job import LoadReport
from zkconsumer.spark.load.manifest import LastMessage, LoadedPartition, LoadState, Manifest, StagedFile
from zkconsumer.spark.load.writing import BAD_FOLDER, DATA_FOLDER, UNDECODED_FOLDER
from zkconsumer.spark.streaming.log_changes import Loss
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets

PLACE = TopicPartition("clicks", 0)
OFFSETS = StreamOffsets({PLACE: 42}, {"clicks": 8589934603}, 1_396_000_000_000)
STREAM = '{"clicks": {"0": 42}, "@born": {"clicks": 8589934603, "@cluster": 1396000000000}}'
LOST = Loss(PLACE, 3, 5, "deleted before it was read")
LOADED = LoadedPartition("clicks", 0, 5, 42, 36, 901, 1, 0)
MANIFEST = """{
 "version": 2,
 "run": 3,
 "run_id": "ab12",
 "began_at": "2014-03-01T10:00:00Z",
 "zookeeper": "zk1:2181/kafka",
 "format": "delta",
 "partition_by": "hour",
 "text": false,
 "history_id": "cd34",
 "ends": {
  "clicks": {
   "0": 42
  }
 },
 "births": {
  "clicks": 8589934603
 },
 "cluster_ms": 1396000000000,
 "topics_seen": 80,
 "tails": [
  ["clicks", 0, 41, null, 17]],
 "waiting": [
  ["clicks", 1]],
 "lost": [
  ["clicks", 0, 3, 5, "deleted before it was read"]],
 "partitions": [
  ["clicks", 0, 5, 42, 36, 901, 1, 0]],
 "files": [
  ["_zkconsumer/staging/x/a.parquet", "topic=clicks/a.parquet"]]
}
"""
COMPACTION = """{
 "version": 1,
 "number": 4,
 "compaction_id": "ef56",
 "began_at": "2014-03-01T10:00:00Z",
 "replacements": [
  ["staged", "final", ["a", "b"]]]
}
"""


def test_the_offsets_of_a_stream() -> None:
    assert json.dumps(OFFSETS.to_json()) == STREAM
    assert parse_stream_offsets(STREAM) == OFFSETS


def test_the_manifest_of_a_run() -> None:
    state = LoadState(OFFSETS, {PLACE: LastMessage(41, None, 17)}, frozenset({TopicPartition("clicks", 1)}), 80)
    files = (StagedFile("_zkconsumer/staging/x/a.parquet", "topic=clicks/a.parquet"),)
    manifest = Manifest(
        3, "ab12", "2014-03-01T10:00:00Z", "zk1:2181/kafka", "delta", "hour", state, (LOADED,), files, False, "cd34",
        (LOST,),
    )  # fmt: skip
    assert manifest.to_json() == MANIFEST
    assert Manifest.from_json("p", MANIFEST) == manifest
    assert _mark(manifest) == "zkconsumer-cd34-3"


def test_the_manifest_of_a_run_with_headers() -> None:
    manifest = replace(Manifest.from_json("p", MANIFEST), headers=True)
    text = MANIFEST.replace('"version": 2', '"version": 3').replace('"cd34",\n', '"cd34",\n "headers": true,\n')
    assert manifest.to_json() == text
    assert Manifest.from_json("p", text) == manifest


def test_the_manifest_of_a_compaction() -> None:
    compaction = Compaction(4, "ef56", "2014-03-01T10:00:00Z", (Replacement("staged", "final", ("a", "b")),))
    assert compaction.to_json() == COMPACTION
    assert Compaction.from_json("p", COMPACTION) == compaction
    assert compaction_folder(compaction) == "_zkconsumer/staging/compaction-000000004-ef56"


def test_the_folders_of_a_load() -> None:
    assert staging_folder(3, "ab12") == "_zkconsumer/staging/000000003-ab12"
    assert (DATA_FOLDER, UNDECODED_FOLDER, BAD_FOLDER) == ("kind=data", "kind=bad", "_bad")


def test_the_notes_beside_a_staging_folder() -> None:
    class Files:
        def __init__(self) -> None:
            self.written: list[str] = []

        def overwrite(self, path: str, text: str) -> None:
            self.written.append(path)

        def delete(self, path: str) -> None:
            pass

    files = Files()
    with Heartbeat(files, "x"):  # type: ignore[arg-type]
        pass
    assert sorted(files.written) == ["x.alive", "x.room"]


def test_the_json_of_the_command_load() -> None:
    report = LoadReport("/lake", 3, 2, (LOADED,), (LOST,), {TopicPartition("clicks", 1): "no leader"},
                        {("clicks", 0): 7}, 1, 0.5, True, 9)  # fmt: skip
    assert _as_json(report) == {
        "folder": "/lake", "run": 3, "known": 2,
        "partitions": [{"topic": "clicks", "partition": 0, "start": 5, "end": 42, "messages": 36, "bytes": 901,
                        "bad": 1, "missing": 0}],
        "lost": ["clicks-0 from offset 3 to 5: deleted before it was read"],
        "silent": [["clicks", 1, "no leader"]],
        "lag": [["clicks", 0, 7]], "files": 1, "seconds": 0.5, "stored": True, "left": 9,
    }  # fmt: skip


def test_the_json_of_the_command_compact_files() -> None:
    assert list(CompactionReport.__dataclass_fields__) == [
        "folder", "compaction", "files_before", "bytes_before", "files_after", "bytes_after", "messages", "left",
        "seconds",
    ]  # fmt: skip
