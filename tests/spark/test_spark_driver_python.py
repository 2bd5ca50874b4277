"""A program run by the interpreter of a virtual environment that is not activated finds the source."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from zkconsumer.spark.requirements import check_java, python_to_name
from zkconsumer.testing import EmbeddedCluster, load

ROOT = Path(__file__).resolve().parents[2]
CHOSEN = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Those of two virtual environments, both with a `python3` that is a link to the same interpreter."""
    places = tmp_path / "one" / "bin", tmp_path / "other" / "bin"
    for place in places:
        place.mkdir(parents=True)
        (place / "python3").symlink_to(sys.executable)
        (place / "python").symlink_to("python3")
    return places


def test_the_interpreter_is_named_where_the_path_leads_to_another_one(folders: tuple[Path, Path]) -> None:
    one, other = folders
    executable = str(one / "python")
    assert python_to_name({"PATH": str(other)}, executable) == executable
    assert python_to_name({"PATH": f"{other}:{one}"}, executable) == executable
    assert python_to_name({"PATH": "/nowhere"}, executable) == executable


def test_nothing_is_said_in_an_environment_that_is_activated(folders: tuple[Path, Path]) -> None:
    one, other = folders
    assert python_to_name({"PATH": f"{one}:{other}"}, str(one / "python")) is None


@pytest.mark.parametrize("name", [*CHOSEN, "PYSPARK_GATEWAY_PORT"])
def test_a_choice_that_was_made_is_left_alone(folders: tuple[Path, Path], name: str) -> None:
    one, other = folders
    assert python_to_name({"PATH": str(other), name: "chosen"}, str(one / "python")) is None
    assert python_to_name({"PATH": str(other)}, None) is None


def run(python: Path | str, program: str, folder: Path, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program as it is run without activating anything, with a `python3` on the PATH that has no packages."""
    bare = folder / "bare"
    if not bare.exists():
        bare.mkdir()
        (bare / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}")
    environment = {name: value for name, value in os.environ.items()
                   if name not in (*CHOSEN, "PYTHONPATH", "VIRTUAL_ENV")}  # fmt: skip
    environment["PATH"] = f"{bare}:/usr/bin:/bin"
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [str(python), "program.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip


SHOW = "import os; print(*(os.environ.get(name, '-') for name in ('PYSPARK_DRIVER_PYTHON', 'PYSPARK_PYTHON')))"


def test_importing_the_package_names_it_and_leaves_executors_alone(tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import zkconsumer.spark; {SHOW}"
    done = run(sys.executable, program, tmp_path)
    assert (done.stdout.split(), done.stderr) == ([sys.executable, "-"], "")


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the tests run in no virtual environment")
def test_where_spark_runs_already_one_sentence_says_what_to_set(tmp_path: Path) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pyspark import SparkContext
SparkContext._gateway = "a JVM was started"
import zkconsumer.spark
{SHOW}
"""
    done = run(sys.executable, program, tmp_path)
    assert done.stdout.split() == ["-", "-"]
    assert f"set PYSPARK_PYTHON={sys.executable}, or import zkconsumer.spark first" in done.stderr
    assert done.stderr.count("Warning") == 1


@pytest.fixture
def not_activated(tmp_path: Path) -> Path:
    """The interpreter of a virtual environment that has what the tests have, as if installed by pip."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=120)
    [site] = place.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    return place / "bin" / "python"


READ = """
{first}
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
rows = spark.read.format("zkconsumer").option("zookeeper.connect", {zookeeper!r}).option("subscribe", {topic!r}).load()
print("rows:", sorted(row.offset for row in rows.collect()))
"""


@pytest.mark.real
@pytest.mark.slow
def test_a_program_reads_without_an_activation_and_spark_finds_nothing_without_the_import(
    not_activated: Path, embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    check_java()
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    load(embedded_cluster, topic, 5)
    place = {"zookeeper": embedded_cluster.zookeeper_connect, "topic": topic}
    done = run(not_activated, READ.format(first="", **place), tmp_path, 240)
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: zkconsumer" in done.stderr
    done = run(not_activated, READ.format(first="import zkconsumer.spark", **place), tmp_path, 240)
    assert "rows: [0, 1, 2, 3, 4]" in done.stdout, done.stderr[-3000:]
