"""Streams with headers of committed messages: Spark's own checkpoints, by ZooKeeper and by brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_jobs import reads_streams
from transactions import PATIENCE_S, Header, Log

from zkconsumer.testing.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real, reads_streams]

Row = tuple[int, int, bytes | None, list[Header] | None]
DONE_S = 120
REPEATED: list[Header] = [("n", b"1"), ("empty", b""), ("null", None), ("n", b"2"), ("", b"no name"), ("ä", b"\xff")]


def run(spark: SparkSession, log: Log, folder: Path, **given: str) -> dict[int, list[Row]]:
    """Read what is there by `availableNow`, and return the rows of each batch."""
    batches: dict[int, list[Row]] = {}

    def keep(rows: DataFrame, number: int) -> None:
        batches[number] = sorted((
            (row.partition, row.offset, None if row.value is None else bytes(row.value),
             None if row.headers is None else [(each.key, None if each.value is None else bytes(each.value))
                                               for each in row.headers])
            for row in rows.collect()
        ), key=lambda row: row[:2])  # fmt: skip

    options = {**log.place, "subscribe": log.topic, "startingOffsets": "earliest", "includeHeaders": "true",
               "kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "4", **given}  # fmt: skip
    rows = spark.readStream.format("zkconsumer").options(**options).load()
    assert rows.schema["headers"].simpleString() == "headers:array<struct<key:string,value:binary>>"
    writer = rows.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    assert writer.foreachBatch(keep).start().awaitTermination(DONE_S)
    return batches


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_batches_have_headers_and_are_repeated_in_the_middle_of_a_transaction(
    spark: SparkSession,
    kafka_clusters: Callable[[str, int], KafkaCluster],
    fresh_topic: Callable[[], str],
    tmp_path: Path,
    version: str,
) -> None:
    log = Log(kafka_clusters(version, 1), fresh_topic(), partitions=2)
    log.plain(b"none")
    log.plain(b"no headers in the list", headers=[])
    log.plain(None, headers=[("of", b"a deletion")])
    log.kept(b"kept 0", b"kept 1", headers=REPEATED)
    log.aborted(b"aborted 0", b"aborted 1", b"aborted 2")
    log.plain(b"other", headers=REPEATED[:1], partition=1)
    writer = log.opened(b"open", headers=REPEATED[2:4])
    log.plain(b"behind")
    first = run(spark, log, tmp_path)
    assert sorted((row for rows in first.values() for row in rows), key=lambda row: row[:2]) == [
        (0, 0, b"none", None),
        (0, 1, b"no headers in the list", None),
        (0, 2, None, [("of", b"a deletion")]),
        (0, 3, b"kept 0", REPEATED),
        (0, 4, b"kept 1", REPEATED),
        (1, 0, b"other", REPEATED[:1]),
    ]
    assert len(first) >= 4, "maxOffsetsPerTrigger"
    assert run(spark, log, tmp_path).keys() - {max(first) + 1} == set(), "at most one batch, without messages"
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):  # as if Spark had died before the batch was done
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    writer.commit_transaction(PATIENCE_S)
    second = run(spark, log, tmp_path)
    assert second[last] == first.get(last, []), "the batch is repeated as it was"
    rows = [row for number, batch in second.items() if number > last for row in batch]
    assert rows == [(0, 10, b"open", REPEATED[2:4]), (0, 11, b"behind", None)]
