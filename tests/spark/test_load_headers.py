"""Loads with headers, and of committed messages alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from transactions import PATIENCE_S, Header, Log

from zkconsumer.cli.program import program
from zkconsumer.spark.load import job
from zkconsumer.spark.load import session as load_session
from zkconsumer.spark.load.compact import CompactionSettings, _sums, run_compactions
from zkconsumer.spark.load.failures import AuditFailed, LoadRefused
from zkconsumer.spark.load.job import LoadReport, run_load
from zkconsumer.spark.load.lake import read_published
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.writing import Shape, rows_of_files
from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

KIND = "array<struct<key:string,value:binary>>"
MANY: list[Header] = [("n", b"1"), ("empty", b""), ("null", None), ("n", b"\xff")]
Row = tuple[int, bytes | str | None, list[Header] | None]


@pytest.fixture
def log(kafka_clusters: Callable[[str, int], KafkaCluster], fresh_topic: Callable[[], str]) -> Log:
    return Log(kafka_clusters("4.3.1", 1), fresh_topic())


def settings_of(log: Log, folder: Path, shape: Shape = Shape("parquet", "none"), **given: str) -> LoadSettings:  # noqa: B008
    source = {"bootstrap.servers": log.brokers, "subscribe": log.topic, "includeHeaders": "true", **given}
    return LoadSettings(source, str(folder), shape)


def rows_of(spark: SparkSession, folder: Path) -> list[Row]:
    """Offset, value and headers of what is published."""
    found = read_published(spark, str(folder)).orderBy("offset").collect()
    return [(row.offset, bytes(row.value) if isinstance(row.value, bytearray) else row.value, pairs(row.headers))
            for row in found]  # fmt: skip


def pairs(headers: Sequence[Any] | None) -> list[Header] | None:
    if headers is None:
        return None
    return [(each.key, None if each.value is None else bytes(each.value)) for each in headers]


def manifest_of(folder: Path, run: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "_zkconsumer" / "runs" / f"{run:09}.json").read_text())
    return found


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_each_run_has_the_headers_and_so_has_what_a_compaction_makes_of_them(
    spark: SparkSession, log: Log, tmp_path: Path, kind: str
) -> None:
    settings = settings_of(log, tmp_path, Shape(kind, "date"))
    log.plain(b"none")
    log.plain(b"many", headers=MANY)
    log.plain(None, headers=[("of", b"a deletion")])
    assert run_load(spark, settings).run == 1
    log.plain(b"one", headers=MANY[:1])
    log.plain(b"null", headers=MANY[2:3])
    assert run_load(spark, settings).run == 2
    expected: list[Row] = [(0, b"none", None), (1, b"many", MANY), (2, None, [("of", b"a deletion")]),
                           (3, b"one", MANY[:1]), (4, b"null", MANY[2:3])]  # fmt: skip
    assert rows_of(spark, tmp_path) == expected
    assert dict(read_published(spark, str(tmp_path)).dtypes)["headers"] == KIND
    if kind == "parquet":
        assert dict(spark.read.parquet(str(tmp_path)).dtypes)["headers"] == KIND, "in the files themselves"
    [report] = run_compactions(spark, CompactionSettings(str(tmp_path)))
    assert (report.files_before, report.files_after, report.messages) == (2, 1, 5)
    assert rows_of(spark, tmp_path) == expected
    manifest = manifest_of(tmp_path, 2)
    assert (manifest["version"], manifest["headers"]) == (4, True), "a release without headers refuses the folder"


def test_a_folder_keeps_what_it_was_begun_with(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    with_headers, without = settings_of(log, tmp_path / "with"), settings_of(log, tmp_path / "without")
    without = replace(without, source={**without.source, "includeHeaders": "false"})
    log.plain(b"one", headers=MANY)
    run_load(spark, with_headers)
    run_load(spark, without)
    assert "headers" not in manifest_of(tmp_path / "without")
    assert "headers" not in read_published(spark, str(tmp_path / "without")).columns
    log.plain(b"two", headers=MANY)
    with pytest.raises(LoadRefused, match="was started with headers, and the headers of the next messages") as raised:
        run_load(spark, replace(without, folder=with_headers.folder))
    assert raised.value.remedy == "continue it with includeHeaders=true (--include-headers)"
    with pytest.raises(LoadRefused, match="was started without headers, and its rows have no such column") as raised:
        run_load(spark, replace(with_headers, folder=without.folder))
    assert "continue it without includeHeaders, or load into another folder" in raised.value.remedy
    assert [run_load(spark, each).run for each in (with_headers, without)] == [2, 2]
    ends = json.dumps(manifest_of(tmp_path / "without")["ends"])  # as the remedy says
    log.plain(b"three", headers=MANY[:2])
    report = run_load(spark, settings_of(log, tmp_path / "after", startingOffsets=ends))
    assert [(each.start, each.end) for each in report.partitions] == [(1, 3)]
    assert rows_of(spark, tmp_path / "after") == [(1, b"two", MANY), (2, b"three", MANY[:2])]


def test_messages_that_are_no_text_keep_their_headers_beside_them(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.plain(b"text", headers=MANY)
    log.plain(b"\xff", headers=MANY)
    log.plain(b"\xfe")
    report = run_load(spark, settings_of(log, tmp_path, Shape("json", "none", text=True)))
    assert [(each.messages, each.bad) for each in report.partitions] == [(1, 2)]
    assert rows_of(spark, tmp_path) == [(0, "text", MANY)]
    [file] = (tmp_path / "_bad").glob("*.json")
    first, second = sorted(map(json.loads, file.read_text().splitlines()), key=lambda row: row["offset"])
    assert first["value"] == base64.b64encode(b"\xff").decode()
    assert [(each["key"], each.get("value")) for each in first["headers"]] == [
        (name, None if value is None else base64.b64encode(value).decode()) for name, value in MANY
    ]
    assert "headers" not in second


def test_a_compaction_would_notice_other_headers(spark: SparkSession) -> None:
    shape = Shape("parquet", "none", has_headers=True)
    schema = f"{rows_of_files(shape)}, group int"

    def sums(*headers: list[Header] | None) -> object:
        rows = [(None, b"v", 0, offset, None, -1, each, 0) for offset, each in enumerate(headers)]
        return _sums(spark.createDataFrame(rows, schema), shape)

    kinds: list[list[Header] | None] = [
        None, [], [("a", b"b")], [("a", None)], [("a", b"")], [("a", b"b"), ("c", None)], [("a", None), ("b", b"c")],
        [("a", b"c"), ("b", None)], [("b", None), ("a", b"c")], [("a", b"b"), ("a", b"b")],
    ]  # fmt: skip
    assert len({str(sums(each)) for each in kinds}) == len(kinds)
    assert sums(kinds[1], kinds[2]) != sums(kinds[2], kinds[1]), "headers that have changed places"


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_committed_messages_are_loaded_up_to_the_open_transaction(
    spark: SparkSession,
    kafka_clusters: Callable[[str, int], KafkaCluster],
    fresh_topic: Callable[[], str],
    tmp_path: Path,
    version: str,
) -> None:
    log = Log(kafka_clusters(version, 1), fresh_topic())
    source = {"subscribe": log.topic, "includeHeaders": "true", "isolation.level": "read_committed"}
    place = {name.removeprefix("kafka."): value for name, value in log.place.items()}
    settings = LoadSettings({**place, **source}, str(tmp_path), Shape("parquet", "none"), allow_gaps=True)
    log.plain(b"before", headers=MANY)
    log.aborted(b"aborted 0", b"aborted 1")
    writer = log.opened(b"open", headers=MANY[:2])
    log.plain(b"behind")
    with pytest.raises(AuditFailed, match=r"3 of the offsets 0 to 3 are missing.*`--gaps allow`"):
        run_load(spark, replace(settings, allow_gaps=False))
    report = run_load(spark, settings)
    assert [(each.start, each.end, each.messages, each.missing) for each in report.partitions] == [(0, 4, 1, 3)]
    assert run_load(spark, settings).run is None, "the open transaction is the end"
    writer.commit_transaction(PATIENCE_S)
    report = run_load(spark, settings)
    assert [(each.start, each.end, each.messages, each.missing) for each in report.partitions] == [(4, 7, 2, 1)]
    assert (report.lost, report.lag) == ((), {(log.topic, 0): 0})
    assert rows_of(spark, tmp_path) == [(0, b"before", MANY), (4, b"open", MANY[:2]), (5, b"behind", None)]
    assert run_load(spark, settings).run is None, "the last message is known again"


def test_the_command_has_options_for_both(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LoadSettings] = []

    def run_portions(spark: object, settings: LoadSettings, *others: object) -> list[LoadReport]:
        asked.append(settings)
        return []

    class NoSession:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(job, "run_portions", run_portions)
    monkeypatch.setattr(load_session, "spark_session", lambda *arguments: NoSession())
    command = ["load", "--bootstrap-server", log.brokers, "--topic", log.topic, "--to", str(tmp_path)]
    for more in ([], ["--include-headers", "--isolation-level", "read_committed"]):
        ran = CliRunner().invoke(program, [*command, *more])
        assert ran.exit_code == 0, ran.output
    plain, both = [(each.shape.has_headers, each.options().config.isolation_level) for each in asked]
    assert (plain, both) == ((False, "read_uncommitted"), (True, "read_committed"))
