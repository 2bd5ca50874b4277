"""What a load says where Iceberg is missing, and what it starts Spark with where it can be had."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from zkconsumer.cli.program import program
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.load.iceberg import iceberg_packages

JAR = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


def test_the_jar_is_the_one_for_the_version_of_spark() -> None:
    assert iceberg_packages({}, "4.1.4") == JAR
    assert iceberg_packages({}, "4.0.1") == JAR.replace("4.1", "4.0", 1)
    assert iceberg_packages({"spark.jars.packages": "org.x:y:1"}, "4.1.4") == f"org.x:y:1,{JAR}"


@pytest.mark.parametrize(
    "given",
    [
        {"spark.jars": "/opt/a.jar,/opt/iceberg-spark-runtime-4.1_2.13-1.12.0.jar"},
        {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
    ],
)
def test_a_jar_that_is_given_is_taken(given: dict[str, str]) -> None:
    assert iceberg_packages(given, "4.3.0") is None


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "5.0.0"])
def test_a_spark_without_such_a_jar_is_refused(version: str) -> None:
    with pytest.raises(RequirementMissing, match=rf"made for Spark {version[:3]}, and Iceberg .* has them for 4\.0"):
        iceberg_packages({}, version)


def test_the_command_says_it_before_it_starts_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    command = ["load", "--zookeeper", "127.0.0.1:1", "--topic", "t", "--to", str(tmp_path), "--format", "iceberg"]
    result = CliRunner().invoke(program, command)
    assert result.exit_code == 1
    assert "needs a jar of Iceberg made for Spark 4.3" in result.output
    assert not list(tmp_path.iterdir())
