"""The archive that `zkconsumer spark-zip` makes for executors without the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from click.testing import CliRunner

from zkconsumer.cli.program import program


def made(path: Path) -> str:
    result = CliRunner().invoke(program, ["spark-zip", str(path)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_archive_says_what_executors_need_beside_it(tmp_path: Path) -> None:
    assert "Executors need pyarrow, numpy, isal, lz4, cramjam, crc32c beside it" in made(tmp_path / "zkconsumer.zip")


def test_the_package_is_imported_from_the_archive_with_nothing_installed_but_what_it_says(tmp_path: Path) -> None:
    target = tmp_path / "zkconsumer.zip"
    made(target)
    # An empty PYTHONPATH and no editable installation: the compiled packages are linked in, one by one.
    installed = tmp_path / "installed"
    installed.mkdir()
    for name in ("pyarrow", "numpy", "numpy.libs", "isal", "lz4", "cramjam", "pyspark", "py4j"):
        for site in map(Path, sys.path):
            if (site / name).is_dir() and "site-packages" in site.parts:
                (installed / name).symlink_to(site / name)
                break
    program = (
        f"import sys; sys.path[:0] = [{str(target)!r}, {str(installed)!r}]\n"
        "import zkconsumer.spark.record_batches as reading, zkconsumer.spark.stream_driver, kazoo, snappy\n"
        "import zkconsumer.spark.sink_task, zkconsumer.spark.sink_writers\n"
        "from zkconsumer.spark import ZkConsumerSource\n"
        "print(reading.__file__, kazoo.__file__, ZkConsumerSource.name())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    inside = str(target)
    assert done.stdout.split() == [
        f"{inside}/zkconsumer/spark/record_batches.py", f"{inside}/kazoo/__init__.py", "zkconsumer"
    ]  # fmt: skip


def test_equal_packages_make_equal_archives_without_the_test_kit(tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    made(first)
    made(second)
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {"pyspark_zkconsumer.py", "zkconsumer_error.py"} <= set(names)
    assert not [name for name in names if "testing" in name]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_name_that_spark_would_not_take_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["spark-zip", str(tmp_path / "zkconsumer.whl")])
    assert result.exit_code == 1
    assert "does not end with .zip" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["spark-zip", str(tmp_path / "nowhere" / "zkconsumer.zip")])
    assert result.exit_code == 1
    assert "nowhere" in result.output
