"""The archive that `zkconsumer spark-zip` makes for executors without the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from simpleconsumer import kernel
from zkconsumer.cli.program import program


def made(path: Path) -> str:
    result = CliRunner().invoke(program, ["spark-zip", str(path)])
    assert result.exit_code == 0, result.output
    return result.output


def installed_beside(folder: Path) -> Path:
    """A folder with links to the packages that executors have beside the archive, without an editable installation."""
    installed = folder / "installed"
    installed.mkdir()
    for name in ("pyarrow", "numpy", "numpy.libs", "isal", "lz4", "cramjam", "pyspark", "py4j"):
        for site in map(Path, sys.path):
            if (site / name).is_dir() and "site-packages" in site.parts:
                (installed / name).symlink_to(site / name)
                break
    return installed


def run_alone(program: str, *arguments: str) -> str:
    """Return what a program prints whose interpreter knows no installed package."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_archive_says_what_executors_need_beside_it(tmp_path: Path) -> None:
    assert "Executors also need pyarrow, numpy, isal, lz4, cramjam, crc32c." in made(tmp_path / "zkconsumer.zip")


@pytest.mark.skipif(kernel.compiled is None, reason=f"needs the compiled kernel, here is {kernel.description}")
def test_the_kernel_is_loaded_from_the_archive_and_plain_python_serves_without_it(tmp_path: Path) -> None:
    whole, without = tmp_path / "whole.zip", tmp_path / "without.zip"
    made(whole)
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(without, "w") as written:
        for name in read.namelist():
            if not name.startswith("simpleconsumer/kernel/_kernel"):
                written.writestr(name, read.read(name))
    installed = installed_beside(tmp_path)
    plain = "plain Python, because the compiled kernel was not built"
    for archive, said in ((whole, "the compiled kernel"), (without, plain)):
        program = (
            f"import sys; sys.path[:0] = [{str(archive)!r}, {str(installed)!r}]\n"
            "from simpleconsumer import decode_messages, encode_message_set, kernel\n"
            "assert [each.value for each in decode_messages(encode_message_set([b'v']), 't', 0)] == [b'v']\n"
            "print(kernel.description)"
        )
        assert run_alone(program).strip() == said


def test_the_package_is_imported_from_the_archive_with_nothing_installed_but_what_it_says(tmp_path: Path) -> None:
    target = tmp_path / "zkconsumer.zip"
    made(target)
    installed = installed_beside(tmp_path)
    program = (
        f"import sys; sys.path[:0] = [{str(target)!r}, {str(installed)!r}]\n"
        "import zkconsumer.spark.reading.record_batches as reading, kazoo, snappy\n"
        "import zkconsumer.spark.streaming.stream_driver\n"
        "import zkconsumer.spark.writing.sink_writers, zkconsumer.spark.writing.sink_writers\n"
        "from zkconsumer.spark import ZkConsumerSource\n"
        "print(reading.__file__, kazoo.__file__, ZkConsumerSource.name())"
    )
    inside = str(target)
    assert run_alone(program).split() == [
        f"{inside}/zkconsumer/spark/reading/record_batches.py", f"{inside}/kazoo/__init__.py", "zkconsumer"
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


PICKLE = """
import sys; sys.path[:0] = [{archive!r}, {installed!r}]
from pathlib import Path
from pyspark.serializers import CloudPickleSerializer
from zkconsumer.spark import ZkConsumerSource
class Own(ZkConsumerSource):
    pass
for kind in (ZkConsumerSource, Own):
    source = kind({{"subscribe": "clicks"}})
    Path(sys.argv[1], kind.__name__).write_bytes(CloudPickleSerializer().dumps(source))
"""
UNPICKLE = """
import sys; sys.path[:0] = [{installed!r}]
from pathlib import Path
from pyspark.serializers import CPickleSerializer
for path in sys.argv[1:]:
    source = CPickleSerializer().loads(Path(path).read_bytes())
    zkconsumer = sys.modules["zkconsumer"].__file__
    print(type(source).__name__, type(source).writer.__module__, dict(source.options), zkconsumer)
"""


def test_a_source_from_an_archive_is_unpickled_where_the_archive_is_not_on_the_path(tmp_path: Path) -> None:
    """Spark's process for a stream on the driver is such a place."""
    target = tmp_path / "zkconsumer.zip"
    made(target)
    named = {"archive": str(target), "installed": str(installed_beside(tmp_path))}
    run_alone(PICKLE.format(**named), str(tmp_path))
    printed = run_alone(UNPICKLE.format(**named), str(tmp_path / "ZkConsumerSource"), str(tmp_path / "Own"))
    there = f"{target}/zkconsumer/__init__.py"
    assert printed.splitlines() == [
        f"ZkConsumerSource zkconsumer.spark.source {{'subscribe': 'clicks'}} {there}",
        f"Own zkconsumer.spark.source {{'subscribe': 'clicks'}} {there}",
    ]
