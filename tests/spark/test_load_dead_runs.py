"""What a load that died has left is removed before the next one writes, and no load that lives is taken for dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loading import Killed, counts, settings_of

from zkconsumer.spark.load import heartbeat, run_writer
from zkconsumer.spark.load.failures import LoadOvertaken
from zkconsumer.spark.load.heartbeat import Heartbeat, all_dead
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.testing import EmbeddedCluster, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEAD = "_zkconsumer/staging/000000002-dead00000000"


@pytest.fixture(autouse=True)
def time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "DEAD_S", 1.0)


@pytest.fixture
def settings(
    spark: SparkSession, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> LoadSettings:
    """A folder with one run, and ten messages for the next."""
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=1)
    load(embedded_cluster, topic, 10)
    settings = settings_of(embedded_cluster, tmp_path, topic)
    assert run_load(spark, settings).run == 1
    load(embedded_cluster, topic, 10, first=10)
    return settings


@pytest.fixture
def left_over(settings: LoadSettings) -> Path:
    """What a load that was killed has written."""
    left = Path(settings.folder) / DEAD / "kind=data" / "part-0.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 100_000)
    (Path(settings.folder) / f"{DEAD}.alive").write_text("17")
    (Path(settings.folder) / f"{DEAD}.room").write_text(" " * 1000)
    return left


def staging(settings: LoadSettings) -> list[str]:
    return sorted(path.name for path in (Path(settings.folder) / "_zkconsumer" / "staging").iterdir())


def offsets(spark: SparkSession, settings: LoadSettings) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(settings.folder).collect())


def test_it_is_removed_before_anything_is_written(
    spark: SparkSession, settings: LoadSettings, left_over: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows = run_writer.write_rows
    seen: list[list[str]] = []

    def look_and_write(*arguments: Any) -> None:
        seen.append(staging(settings))
        write_rows(*arguments)

    monkeypatch.setattr(run_writer, "write_rows", look_and_write)
    report = run_load(spark, settings)
    assert [name.partition("-")[0] for name in seen[0]] == ["000000003"] * 2  # its own notes
    assert (report.run, counts(report)) == (3, {0: (10, 20, 10)})
    assert staging(settings) == []
    assert offsets(spark, settings) == [*range(20)]


def test_a_run_that_follows_one_without_anything_in_it_goes_by_the_one_before(
    spark: SparkSession, settings: LoadSettings, left_over: Path
) -> None:
    run_load(spark, settings)
    storage = Storage(spark, settings.folder)
    first, second = (History(storage).read(run) for run in (1, 2))
    assert second.state == first.state
    assert (second.partitions, second.files) == ((), ())


def test_what_died_in_the_very_first_run_is_removed_too(
    spark: SparkSession, settings: LoadSettings, tmp_path: Path
) -> None:
    fresh = replace(settings, folder=str(tmp_path / "fresh"))
    left = Path(fresh.folder) / "_zkconsumer" / "staging" / "000000001-dead00000000" / "part-0.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    report = run_load(spark, fresh)
    assert (report.run, counts(report)) == (2, {0: (0, 20, 20)})
    assert staging(fresh) == []


def test_a_load_that_lives_is_left_alone_until_a_run_of_its_number_is_published(
    spark: SparkSession, settings: LoadSettings, left_over: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows = run_writer.write_rows
    there: list[bool] = []

    def look_and_write(*arguments: Any) -> None:
        there.append(left_over.exists())
        write_rows(*arguments)

    monkeypatch.setattr(run_writer, "write_rows", look_and_write)
    with Heartbeat(Storage(spark, settings.folder), DEAD):
        assert run_load(spark, settings).run == 2
    assert there == [True]
    assert not left_over.exists()
    assert staging(settings) == []


def test_a_load_that_was_stopped_and_taken_for_dead_publishes_nothing(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = History.publish

    def stopped(history: History, manifest: Any) -> None:
        monkeypatch.setattr(History, "publish", publish)
        with monkeypatch.context() as patched:
            patched.setattr("zkconsumer.spark.load.history.all_dead", lambda storage, folders: True)
            assert run_load(spark, settings).run == 3
        publish(history, manifest)

    monkeypatch.setattr(History, "publish", stopped)
    with pytest.raises(LoadOvertaken, match="start it again"):
        run_load(spark, settings)
    assert offsets(spark, settings) == [*range(20)]
    assert run_load(spark, settings).run is None


def test_a_run_that_a_load_published_just_before_it_was_taken_for_dead_is_finished(
    spark: SparkSession, settings: LoadSettings, left_over: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*arguments: Any) -> None:
        raise Killed

    looks: list[int] = []

    def publishes_and_dies(storage: Storage, folders: Any) -> bool:
        looks.append(1)
        if len(looks) > 1:
            return False
        with monkeypatch.context() as patched:
            patched.setattr(Storage, "move", dies)
            with pytest.raises(Killed):
                run_load(spark, settings)
        return True

    monkeypatch.setattr("zkconsumer.spark.load.history.all_dead", publishes_and_dies)
    assert run_load(spark, settings).run is None
    assert offsets(spark, settings) == [*range(20)]
    assert staging(settings) == []


def test_life_is_seen_by_the_number_alone(spark: SparkSession, settings: LoadSettings, left_over: Path) -> None:
    storage = Storage(spark, settings.folder)
    assert all_dead(storage, [DEAD])
    with Heartbeat(storage, DEAD):
        assert not all_dead(storage, [DEAD])
    assert not Path(settings.folder, f"{DEAD}.alive").exists()
    assert all_dead(storage, [DEAD])
