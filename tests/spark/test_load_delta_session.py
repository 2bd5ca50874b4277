"""What a load says where Delta is missing, and what it starts Spark with where it is there."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkconsumer.cli.program import program
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.load import delta
from zkconsumer.spark.load.delta import delta_packages, delta_settings, refuse_unfit_versions

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
REQUIRES = ["pyspark<=4.2.0,>=4.0.1", "importlib_metadata<=8.7.1,>=1.0.0"]


def test_settings_that_are_given_stay() -> None:
    ours = delta_settings({})
    assert ours["spark.sql.extensions"] == EXTENSION
    assert ours["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    given = {"spark.sql.extensions": "org.x.Mine", "spark.sql.catalog.spark_catalog": "org.x.Catalog", "spark.x": "1"}
    assert delta_settings(given) == {**given, "spark.sql.extensions": f"org.x.Mine,{EXTENSION}"}
    assert delta_settings(delta_settings(given)) == delta_settings(given)


@pytest.mark.parametrize(
    "given",
    [
        {"spark.jars": "/opt/a.jar,/opt/delta-spark_4.2_2.13-4.4.0.jar"},
        {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"},
    ],
)
def test_a_jar_that_is_given_is_taken(given: dict[str, str]) -> None:
    assert delta_packages(given) is None


def test_without_delta_spark_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(RequirementMissing, match=r"needs delta-spark.*pip install 'zkconsumer\[delta\]'"):
        delta_packages({})


def test_the_command_says_it_before_it_starts_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(delta, "_installed", lambda: None)
    command = ["load", "--zookeeper", "127.0.0.1:1", "--topic", "t", "--to", str(tmp_path), "--format", "delta"]
    result = CliRunner().invoke(program, command)
    assert result.exit_code == 1
    assert "needs delta-spark" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pyspark", ["4.0.1", "4.1.4", "4.2.0", "4.2.1"])
def test_versions_that_fit(pyspark: str) -> None:
    refuse_unfit_versions("4.4.0", REQUIRES, pyspark)
    refuse_unfit_versions("4.0.1", ["pyspark (>=4.0.0)"], pyspark)


@pytest.mark.parametrize(
    ("requires", "pyspark", "sentence"),
    [
        (REQUIRES, "4.3.0", r"delta-spark 4.4.0 is for pyspark <=4.2.0, not for 4.3.0; pip install 'zkconsumer\[del"),
        (REQUIRES, "3.5.9", "is for pyspark >=4.0.1, not for 3.5.9"),
        (["pyspark<4.2,>=4.1"], "4.2.0", "is for pyspark <4.2, not for 4.2.0"),
    ],
)
def test_versions_that_do_not_fit_are_refused(requires: list[str], pyspark: str, sentence: str) -> None:
    with pytest.raises(RequirementMissing, match=sentence):
        refuse_unfit_versions("4.4.0", requires, pyspark)
