"""`zkconsumer compact-files`: fewer files, and each message there once, whenever a compaction dies.

A reader of the plain folder misses no message at any moment, and one that goes by the manifests reads each once.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
from click.testing import CliRunner
from loading import DyingStorage, Killed, settings_of

from zkconsumer.cli.program import program
from zkconsumer.spark.load import compact, heartbeat
from zkconsumer.spark.load.compact import CompactionReport, CompactionSettings, run_compactions
from zkconsumer.spark.load.compaction_history import CompactionHistory
from zkconsumer.spark.load.failures import AuditFailed, LoadOvertaken, LoadRefused
from zkconsumer.spark.load.history import History
from zkconsumer.spark.load.job import run_load
from zkconsumer.spark.load.lake import published_files, read_published
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.spark.load.writing import Shape
from zkconsumer.testing import EmbeddedCluster, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS, OF_EACH = 3, 10
PARTITIONS = 2


@pytest.fixture(autouse=True)
def time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "DEAD_S", 0.3)


class Topic:
    """A topic of two partitions, and how many messages each has by now."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.name = f"topic-{uuid.uuid4().hex[:12]}"
        self.end = 0
        self._cluster = cluster
        cluster.create_topic(self.name, partitions=PARTITIONS)

    def grow(self) -> None:
        load(self._cluster, self.name, OF_EACH, first=self.end)
        self.end += OF_EACH


@pytest.fixture(scope="module")
def topic(embedded_clusters: Callable[[int], EmbeddedCluster]) -> Topic:
    """Shared by the tests: others may have let it grow."""
    return Topic(embedded_clusters(1))


@pytest.fixture(scope="module")
def loaded(
    spark: SparkSession,
    embedded_clusters: Callable[[int], EmbeddedCluster],
    topic: Topic,
    tmp_path_factory: pytest.TempPathFactory,
) -> LoadSettings:
    """A folder with three runs of two partitions, a file for each partition in each run: to be copied, not changed."""
    folder = tmp_path_factory.mktemp("loaded") / "lake"
    settings = replace(settings_of(embedded_clusters(1), folder, topic.name), shape=Shape("parquet", "none"))
    for _ in range(RUNS):
        topic.grow()
        run_load(spark, settings)
    return settings


@pytest.fixture
def settings(loaded: LoadSettings, tmp_path: Path) -> LoadSettings:
    """A copy of that folder."""
    shutil.copytree(loaded.folder, tmp_path / "lake")
    return replace(loaded, folder=str(tmp_path / "lake"))


def compacted(spark: SparkSession, folder: str | Path, file_bytes: int = 2**20) -> list[CompactionReport]:
    return [*run_compactions(spark, CompactionSettings(str(folder), file_bytes))]


def files(folder: str | Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).glob("topic=*/**/*.parquet"))


def plain(folder: str | Path) -> Counter[tuple[int, int]]:
    """Partition and offset of what a reader finds who lists the folder."""
    found: Counter[tuple[int, int]] = Counter()
    for path in files(folder):
        table = pyarrow.parquet.ParquetFile(Path(folder) / path).read(["partition", "offset"])
        found.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return found


def each_once(count: int = RUNS * OF_EACH) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(count))


def exact(spark: SparkSession, folder: str | Path) -> Counter[tuple[int, int]]:
    """The same of one who goes by the manifests."""
    rows = read_published(spark, str(folder)).select("partition", "offset").collect()
    return Counter((row.partition, row.offset) for row in rows)


def test_small_files_become_one_with_the_same_rows_in_order(spark: SparkSession, settings: LoadSettings) -> None:
    by = ["topic", "partition", "offset"]
    before = spark.read.parquet(settings.folder).orderBy(*by)
    rows, schema, old = before.collect(), before.schema, files(settings.folder)
    assert len(old) == RUNS * PARTITIONS
    [report] = compacted(spark, settings.folder)
    [new] = files(settings.folder)
    assert new.startswith(f"topic={settings.source['subscribe']}/000000001-compacted-000000001-")
    assert (report.compaction, report.files_before, report.files_after, report.left) == (1, len(old), 1, 0)
    assert (report.messages, report.bytes_after) == (len(rows), (Path(settings.folder) / new).stat().st_size)
    after = spark.read.parquet(settings.folder)
    assert (after.orderBy(*by).collect(), after.schema) == (rows, schema)
    table = pyarrow.parquet.ParquetFile(Path(settings.folder) / new).read(["partition", "offset"])
    places = [*zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)]
    assert places == sorted(places)
    assert exact(spark, settings.folder) == each_once()
    assert not list(Path(settings.folder, "_zkconsumer", "staging").iterdir())

    [again] = compacted(spark, settings.folder)
    assert (again.compaction, again.files_before) == (None, 1)
    assert files(settings.folder) == [new]


def test_files_are_filled_up_to_the_size_and_large_ones_stay(spark: SparkSession, settings: LoadSettings) -> None:
    largest = max((Path(settings.folder) / path).stat().st_size for path in files(settings.folder))
    [report] = compacted(spark, settings.folder, 2 * largest)
    assert (report.files_before, report.files_after) == (RUNS * PARTITIONS, RUNS)
    assert plain(settings.folder) == each_once()
    [none] = compacted(spark, settings.folder, 1000)
    assert (none.compaction, none.files_before) == (None, RUNS)


def test_a_load_goes_on_behind_a_compaction(spark: SparkSession, topic: Topic, settings: LoadSettings) -> None:
    compacted(spark, settings.folder)
    topic.grow()
    assert run_load(spark, settings).run == RUNS + 1
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once(topic.end)
    [report] = compacted(spark, settings.folder)
    assert (report.compaction, report.files_before, report.files_after) == (2, 1 + PARTITIONS, 1)
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once(topic.end)


def test_json_in_directories_keeps_its_layout_and_its_rows(
    spark: SparkSession, topic: Topic, settings: LoadSettings, tmp_path: Path
) -> None:
    # The hour by the value: half of the messages lie in one directory, half in another.
    def hour(frame: Any) -> Any:
        from pyspark.sql import functions as f

        return f.timestamp_seconds(f.lit(1_393_632_000) + f.when(f.col("offset") % 2 == 0, 0).otherwise(3600))

    shape = Shape("json", "hour", text=True, event_time=hour)
    other = replace(settings, folder=str(tmp_path / "json"), shape=shape, max_messages=30)
    while run_load(spark, other).left:
        pass
    before = sorted(map(tuple, spark.read.json(other.folder).collect()))
    directories = sorted({path.parent for path in Path(other.folder).glob("topic=*/**/*.json")})
    assert [path.name for path in directories] == ["hour=00", "hour=01"]
    [report] = run_compactions(spark, CompactionSettings(other.folder, compression="gzip"))
    assert report.files_after == 2 < report.files_before
    assert sorted(path.parent for path in Path(other.folder).glob("topic=*/**/*.json.gz")) == directories
    assert not [*Path(other.folder).glob("topic=*/**/*.json")]
    assert sorted(map(tuple, spark.read.json(other.folder).collect())) == before
    columns = spark.read.json(other.folder).columns
    assert sorted(map(tuple, read_published(spark, other.folder).select(columns).collect())) == sorted(
        tuple(row) for row in spark.read.schema(read_published(spark, other.folder).schema).json(other.folder)
        .select(columns).collect()
    )  # fmt: skip


def test_what_was_not_written_as_it_was_is_not_published(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(settings.folder)
    rewrite = compact.rewrite_groups

    def swap(spark: SparkSession, storage: Storage, groups: Any, shape: Shape, to: str) -> None:
        """Write the files of other messages: as many, with the same offsets."""
        rewrite(spark, storage, groups, shape, to)
        [path] = Path(storage.folder.removeprefix("file:"), to).glob("group=0/*.parquet")
        table = pyarrow.parquet.ParquetFile(path).read()
        values = table["value"].to_pylist()
        [at] = [n for n, name in enumerate(table.column_names) if name == "value"]
        swapped = table.set_column(at, table.schema.field(at), [[*values[1:], values[0]]])
        pyarrow.parquet.write_table(swapped, path, use_deprecated_int96_timestamps=True)
        for crc in path.parent.glob(".*.crc"):
            crc.unlink()

    monkeypatch.setattr(compact, "rewrite_groups", swap)
    with pytest.raises(AuditFailed, match=r"partition 0: the files had 30 rows of offsets 0 to 29, and 30 rows"):
        compacted(spark, settings.folder)
    assert files(settings.folder) == before
    assert not list(Path(settings.folder, "_zkconsumer", "staging").iterdir())
    assert not Path(settings.folder, "_zkconsumer", "compactions").exists()


def test_no_group_is_published_that_lacks_rows(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite = compact.rewrite_groups

    def leave_one_out(spark: SparkSession, storage: Storage, groups: Any, shape: Shape, to: str) -> None:
        rewrite(spark, storage, [groups[0][1:]], shape, to)

    monkeypatch.setattr(compact, "rewrite_groups", leave_one_out)
    with pytest.raises(AuditFailed, match=r"nothing was published: .* had 30 rows of offsets 0 to 29, and 20 rows"):
        compacted(spark, settings.folder)
    assert plain(settings.folder) == each_once()


def deaths(spark: SparkSession, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of a folder in which a compaction has died, each one change later than the one before."""
    largest = max((lake / path).stat().st_size for path in files(lake))
    for change in range(1, 50):
        folder = tmp_path / f"died-{change}"
        shutil.copytree(lake, folder)
        DyingStorage.left, DyingStorage.after = change, change % 2 == 1
        with monkeypatch.context() as patched:
            patched.setattr(compact, "Storage", DyingStorage)
            try:
                compacted(spark, folder, 3 * largest)
            except Killed:
                pass
            else:
                assert change > 8  # publication, two files in their places, six away, and what is left of it
                return
        yield folder


@pytest.mark.slow
def test_a_compaction_that_dies_at_any_change_of_the_folder_costs_no_message_and_repeats_none(
    spark: SparkSession, settings: LoadSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max((Path(settings.folder) / path).stat().st_size for path in files(settings.folder))
    states = set()
    for folder in deaths(spark, Path(settings.folder), tmp_path, monkeypatch):
        seen = plain(folder)
        assert seen.keys() == each_once().keys()
        states.add(seen == each_once())
        here = {path.removeprefix(f"file:{folder}/") for path in published_files(spark, str(folder))}
        exactly: Counter[tuple[int, int]] = Counter()
        for path in here:
            table = pyarrow.parquet.ParquetFile(folder / path).read(["partition", "offset"])
            exactly.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        assert exactly == each_once()
        # What it had published is finished, what it had not is done again.
        compacted(spark, folder, 3 * largest)
        assert plain(folder) == each_once()
        assert len(files(folder)) in (1, 2)  # one, where it was all done, and small enough to be put together again
        assert not list((folder / "_zkconsumer" / "staging").iterdir())
    assert states == {True, False}  # a reader of the plain folder may see messages twice until then


def test_a_load_finishes_what_a_compaction_left(
    spark: SparkSession, topic: Topic, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    DyingStorage.left, DyingStorage.after = 3, True
    with monkeypatch.context() as patched:
        patched.setattr(compact, "Storage", DyingStorage)
        with pytest.raises(Killed):
            compacted(spark, settings.folder)
    assert plain(settings.folder) != each_once()
    run_load(spark, settings)
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once(topic.end)
    assert len([path for path in files(settings.folder) if "-compacted-" in path]) == 1
    assert not [path for path in files(settings.folder) if path.startswith(f"topic={topic.name}/000000001-part")]


def test_a_load_removes_what_a_compaction_left_that_published_nothing(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(compactions: CompactionHistory, compaction: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(CompactionHistory, "publish", die)
        with pytest.raises(Killed):
            compacted(spark, settings.folder)
    staging = Path(settings.folder, "_zkconsumer", "staging")
    assert [name.name[:21] for name in staging.iterdir()] == ["compaction-000000001-"]
    run_load(spark, settings)
    assert not list(staging.iterdir())
    assert [each.compaction for each in compacted(spark, settings.folder)] == [2]  # the dead one can publish no more


def test_of_two_compactions_at_the_same_time_one_publishes(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = CompactionHistory.publish

    def overtaken(compactions: CompactionHistory, compaction: Any) -> None:
        monkeypatch.setattr(CompactionHistory, "publish", publish)
        assert [each.compaction for each in compacted(spark, settings.folder)] == [1]
        publish(compactions, compaction)

    monkeypatch.setattr(CompactionHistory, "publish", overtaken)
    with pytest.raises(LoadOvertaken, match=r"another compaction has published .* start it again"):
        compacted(spark, settings.folder)
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once()
    assert not list(Path(settings.folder, "_zkconsumer", "staging").iterdir())


def test_who_finds_what_it_writes_swept_away_was_overtaken(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = compact.compare_groups

    def overtaken(*arguments: Any) -> int:
        monkeypatch.setattr(compact, "compare_groups", compare)
        compacted(spark, settings.folder)
        return compare(*arguments)

    monkeypatch.setattr(compact, "compare_groups", overtaken)
    with pytest.raises(LoadOvertaken, match="another compaction has published"):
        compacted(spark, settings.folder)
    assert plain(settings.folder) == each_once()


def test_a_compaction_that_was_stopped_and_taken_for_dead_publishes_nothing(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = CompactionHistory.publish

    def stopped(compactions: CompactionHistory, compaction: Any) -> None:
        monkeypatch.setattr(CompactionHistory, "publish", publish)
        with monkeypatch.context() as patched:
            name = "zkconsumer.spark.load.compaction_history.all_dead"
            patched.setattr(name, lambda storage, folders: True)
            assert [each.compaction for each in compacted(spark, settings.folder)] == [2]
        publish(compactions, compaction)

    monkeypatch.setattr(CompactionHistory, "publish", stopped)
    with pytest.raises(LoadOvertaken, match="another compaction has published"):
        compacted(spark, settings.folder)
    assert plain(settings.folder) == each_once()


def test_a_load_and_a_compaction_at_the_same_time_both_publish(
    spark: SparkSession, topic: Topic, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = compact.compare_groups

    def meanwhile(*arguments: Any) -> int:
        topic.grow()
        assert run_load(spark, settings).run == RUNS + 1
        return compare(*arguments)

    monkeypatch.setattr(compact, "compare_groups", meanwhile)
    assert [each.compaction for each in compacted(spark, settings.folder)] == [1]
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once(topic.end)
    assert len(files(settings.folder)) == 1 + PARTITIONS


@pytest.mark.slow
@pytest.mark.parametrize("who", ["load", "compaction"])
def test_whoever_is_stopped_while_it_moves_files_finds_them_moved_and_replaced(
    spark: SparkSession, topic: Topic, settings: LoadSettings, who: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Others finish it, go on, and put its files together with others, before it goes on itself."""
    move = Storage.move

    def stopped(storage: Storage, before: str, after: str) -> None:
        monkeypatch.setattr(Storage, "move", move)
        compacted(spark, settings.folder)  # finishes it, and leaves what somebody else may be moving
        topic.grow()
        run_load(spark, settings)
        compacted(spark, settings.folder)
        assert len(files(settings.folder)) == 1
        move(storage, before, after)

    topic.grow()
    if who == "compaction":
        run_load(spark, settings)
    monkeypatch.setattr(Storage, "move", stopped)
    if who == "load":
        assert run_load(spark, settings).run == RUNS + 1
    else:
        compacted(spark, settings.folder)
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once(topic.end)


def test_what_a_load_has_published_and_not_moved_is_read_exactly_and_left_alone(
    spark: SparkSession, topic: Topic, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*arguments: Any) -> None:
        raise Killed

    topic.grow()
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "move", dies)
        with pytest.raises(Killed):
            run_load(spark, settings)
    assert plain(settings.folder) == each_once()
    assert exact(spark, settings.folder) == each_once(topic.end)
    [report] = compacted(spark, settings.folder)  # another load may still be moving these
    assert (report.files_before, len(files(settings.folder))) == (RUNS * PARTITIONS, 1 + PARTITIONS)
    assert plain(settings.folder) == exact(spark, settings.folder) == each_once(topic.end)


def test_a_reader_whose_files_go_meanwhile_fails_and_does_not_miss_them(
    spark: SparkSession, settings: LoadSettings
) -> None:
    frame = read_published(spark, settings.folder)
    compacted(spark, settings.folder)
    with pytest.raises(Exception, match=r"(?s)FAILED_READ_FILE|FILE_NOT_EXIST|does not exist"):
        frame.count()
    assert exact(spark, settings.folder) == each_once()


def test_a_look_during_which_a_compaction_is_published_is_repeated(
    spark: SparkSession, settings: LoadSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = Storage.sizes

    def overtaken(storage: Storage, path: str) -> dict[str, int]:
        monkeypatch.setattr(Storage, "sizes", sizes)
        compacted(spark, settings.folder)
        return sizes(storage, path)

    monkeypatch.setattr(Storage, "sizes", overtaken)
    assert exact(spark, settings.folder) == each_once()


def test_the_command_says_what_it_has_done(spark: SparkSession, settings: LoadSettings,
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    class Session:
        def __enter__(self) -> SparkSession:
            return spark

        def __exit__(self, *exception: object) -> None: ...

    monkeypatch.setattr("zkconsumer.spark.load.session.spark_session", lambda *arguments: Session())
    said = CliRunner().invoke(program, ["compact-files", "--to", settings.folder])
    assert (said.exit_code, said.output.startswith("Compaction 1 published: 6 files of ")) == (0, True)
    assert said.output.rstrip().endswith("60 messages, each compared.")
    said = CliRunner().invoke(program, ["compact-files", "--to", settings.folder, "--json"])
    report = json.loads(said.output)
    assert (said.exit_code, report["compaction"], report["files_before"]) == (0, None, 1)


def test_what_cannot_be_put_together_is_refused(spark: SparkSession, settings: LoadSettings, tmp_path: Path) -> None:
    with pytest.raises(LoadRefused, match=r"no load has published anything in .*empty"):
        compacted(spark, tmp_path / "empty")
    with pytest.raises(LoadRefused, match="the file size is 0 bytes"):
        CompactionSettings(settings.folder, 0)
    storage = Storage(spark, settings.folder)
    last = History(storage).last()
    assert last is not None
    Path(settings.folder, "_zkconsumer", "runs", "000000004.json").write_text(
        replace(last, run=4, format="delta", files=()).to_json()
    )
    with pytest.raises(LoadRefused, match=r"is a Delta table.*OPTIMIZE delta\.`file:"):
        compacted(spark, settings.folder)
