"""What is said when something that Spark needs is missing or too old; and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.spark import requirements
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.requirements import check_java, check_packages, java_version

ROOT = Path(__file__).resolve().parents[2]


def fake_java(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return folder


def test_what_is_installed_here_is_enough() -> None:
    check_packages()


def test_a_package_that_is_too_old_is_named_with_the_command_that_brings_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(requirements.LEAST_VERSIONS, "pyarrow", (9999, 5))
    with pytest.raises(RequirementMissing, match=r"pyarrow 9999\.5 or newer, not .*pip install 'zkconsumer\[spark\]'"):
        check_packages()
    check_packages("numpy")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(requirements.LEAST_VERSIONS, "no-such-package", (1, 2))
    with pytest.raises(RequirementMissing, match=r"needs no-such-package 1\.2 or newer, which is not installed"):
        check_packages("no-such-package")


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementMissing, match="needs Java, which was not found; install Java 17 or newer"):
        check_java()


@pytest.mark.parametrize(
    ("script", "means"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is 11; install Java 17"),
        ("echo 'java version \"1.8.0_292\"' >&2", "is 8; install Java 17"),
        ("exit 3", "does not run"),
    ],
)
def test_a_java_home_that_will_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, means: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", script)))
    with pytest.raises(RequirementMissing, match=means):
        check_java()


def test_a_java_home_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(RequirementMissing, match=r"JAVA_HOME is .*nowhere"):
        check_java()


def test_a_java_that_is_new_enough_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "echo 'openjdk version \"25\" 2025-09-16' >&2")
    monkeypatch.setenv("JAVA_HOME", str(home))
    check_java()
    assert java_version(str(home / "bin" / "java")) == 25


def in_another_python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_importing_the_package_and_the_entry_for_spark_costs_neither_pyspark_nor_pyarrow() -> None:
    program = (
        "import sys, zkconsumer, zkconsumer.spark, pyspark_zkconsumer\n"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    assert in_another_python(program) == "[]"


def test_spark_finds_the_source_by_its_name_and_pyarrow_is_not_needed_for_that() -> None:
    program = (
        "import sys, pyspark_zkconsumer as entry\n"
        "from pyspark.sql.datasource import DataSource\n"
        "assert hasattr(entry, 'DefaultSource') and issubclass(entry.DefaultSource, DataSource)\n"
        "print(entry.DefaultSource.name(), 'pyarrow' in sys.modules)"
    )
    assert in_another_python(program) == "zkconsumer False"


def test_a_stream_on_a_spark_that_is_too_old_says_which_one_it_needs() -> None:
    program = (
        "import pyspark.sql.streaming.datasource as news\n"
        "del news.SupportsTriggerAvailableNow\n"  # what pyspark 4.0 and 4.1 do not have
        "from zkconsumer.spark import ZkConsumerSource\n"
        "from zkconsumer.spark.errors import RequirementMissing\n"
        "from pyspark.sql.types import StructType\n"
        "try:\n"
        "    source = ZkConsumerSource({'zookeeper.connect': 'zk', 'subscribe': 'clicks'})\n"
        "    source.streamReader(StructType([])).initialOffset()\n"
        "except RequirementMissing as error:\n"
        "    print(error)"
    )
    assert in_another_python(program).startswith("a stream needs pyspark 4.2 or newer, not ")


def test_the_entry_never_fails_when_the_package_cannot_be_imported() -> None:
    program = (
        "import sys\n"
        "sys.modules['zkconsumer'] = None\n"
        "import pyspark_zkconsumer as entry\n"
        "print(hasattr(entry, 'DefaultSource'), hasattr(entry, 'anything'))"
    )
    assert in_another_python(program) == "False False"
