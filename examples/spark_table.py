"""A topic as a table of Spark: the settings name a cluster of any age, and the program is the same.

    zkconsumer cluster up --zookeeper-port 2181 --topic clicks:4
    python examples/spark_table.py zookeeper.connect=127.0.0.1:2181 subscribe=clicks

For a current cluster, with TLS and SASL, name some brokers instead of its ZooKeeper. The password stands in a file
that no one else can read (sasl.username=..., sasl.password=...):

    kafka.bootstrap.servers=b1:9093,b2:9093 kafka.security.protocol=SASL_SSL kafka.sasl.mechanism=SCRAM-SHA-512
    kafka.ssl.truststore.type=PEM kafka.ssl.truststore.location=ca.pem config=secrets.properties subscribe=clicks

Each message is printed as JSON, the oldest of a partition first. Messages have headers from Kafka 0.11 on; the column
is null for those without any, and for all of an older cluster. Needs `pip install -e '.[spark]'` and Java.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

import zkconsumer.spark  # noqa: F401 - before Spark starts, so that Spark finds the format


def table(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """Return the messages of topics, with headers."""
    return spark.read.format("zkconsumer").option("includeHeaders", "true").options(**options).load()


def main() -> None:
    options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    if len(options) < 2:
        sys.exit("usage: spark_table.py NAME=VALUE ..., the options of docs/SPARK_READING.md")
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    messages = table(spark, options).selectExpr(
        "topic", "partition", "offset", "cast(key as string)", "cast(value as string)",
        "transform(headers, each -> struct(each.key, cast(each.value as string) as value)) as headers",
    )  # fmt: skip
    for line in messages.orderBy("topic", "partition", "offset").toJSON().toLocalIterator():
        print(line)
    spark.stop()


if __name__ == "__main__":
    main()
