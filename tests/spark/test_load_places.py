"""`zkconsumer load` on file systems that do as object stores do, and what is said of places that will not do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


class NeverOver:
    """A file system as object stores are seen through Hadoop: no file is renamed to where another one is."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def rename(self, old: Any, new: Any) -> bool:
        return not self._real.exists(new) and bool(self._real.rename(old, new))


def test_a_move_that_died_between_its_copy_and_the_deletion_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark, str(tmp_path))
    storage._system = NeverOver(storage._system)
    before, after = tmp_path / "staging" / "part", tmp_path / "topic=clicks" / "part"
    for place in (before, after):
        place.parent.mkdir()
        place.write_bytes(b"rows")
    storage.move("staging/part", "topic=clicks/part")
    assert (before.exists(), after.read_bytes()) == (False, b"rows")
    storage.move("staging/part", "topic=clicks/part")  # another load has done so already
    before.write_bytes(b"other rows")
    with pytest.raises(LoadRefused, match="belongs to a published run and cannot be moved there"):
        storage.move("staging/part", "topic=clicks/part")
    assert after.read_bytes() == b"rows"


@pytest.mark.parametrize(
    ("folder", "means"),
    [
        ("~/lake", "the shell has not expanded ~"),
        ("/data/lake[1]", r"treats \[ \] as a pattern"),
        ("", "empty string"),
    ],
)
def test_folders_that_spark_would_take_for_others_are_refused(spark: SparkSession, folder: str, means: str) -> None:
    with pytest.raises(LoadRefused, match=means):
        Storage(spark, folder)


def test_a_folder_may_have_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "a lake, grün 100%20#1"
    for name in (f"{place}/", f"file://{tmp_path}/{place.name}", str(place)):
        storage = Storage(spark, name)
        storage.create(f"runs/{len(storage.names('runs'))}.json", name)
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["0.json", "1.json", "2.json"]
    assert storage.read_text("runs/2.json") == str(place)
    assert storage.files("") == ["runs/0.json", "runs/1.json", "runs/2.json"]
