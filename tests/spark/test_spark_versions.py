"""What other versions of Spark do than the newest, in which all other tests run."""

from __future__ import annotations

from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading.batch_planning import ZkBatchReader


def test_spark_40_reads_no_partition_at_all_where_there_is_nothing() -> None:
    reader = ZkBatchReader(batch_options({"zookeeper.connect": "zk", "subscribe": "clicks"}), ("value",))
    assert list(reader.read(None)) == []
