"""What the tests of loads share: what they load, and a folder whose user dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from producing import Message

from zkconsumer.spark.load import job
from zkconsumer.spark.load.job import LoadReport, run_load
from zkconsumer.spark.load.settings import LoadSettings
from zkconsumer.spark.load.storage import Storage
from zkconsumer.testing.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def numbered(first: int, count: int) -> list[Message]:
    return [(b"k%d" % n if n % 2 else None, b"v%d" % n if n % 5 else None) for n in range(first, first + count)]


def settings_of(cluster: Cluster, folder: Path, topic: str, **source: str) -> LoadSettings:
    return LoadSettings({"zookeeper.connect": cluster.zookeeper_connect, "subscribe": topic, **source}, str(folder))


def counts(report: LoadReport) -> dict[int, tuple[int, int, int]]:
    return {each.partition: (each.start, each.end, each.messages) for each in report.partitions}


class Killed(BaseException):
    """Simulates the end of the process: no code runs after it."""


class DyingStorage(Storage):
    """A folder whose user dies before or after one of the changes it makes."""

    left = 10**9
    after = False

    def _change(self, act: Callable[..., None], *arguments: str) -> None:
        cls = type(self)
        cls.left -= 1
        if cls.left < 0 or (cls.left == 0 and not cls.after):
            raise Killed
        act(*arguments)
        if cls.left == 0:
            raise Killed

    def create(self, path: str, text: str) -> None:
        self._change(super().create, path, text)

    def move(self, before: str, after: str) -> None:
        self._change(super().move, before, after)

    def delete(self, path: str) -> None:
        self._change(super().delete, path)


def die_at_each_change(
    spark: SparkSession,
    settings: LoadSettings,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before_each: Callable[[], None],
    after_each: Callable[[], None],
) -> None:
    """Let a load die before or after each change it makes to the folder, and run another one after it.

    Args:
        before_each: brings messages for the load that dies.
        after_each: looks at what is there when the other one is done.
    """
    deaths = 0
    for change in range(1, 50):
        before_each()
        DyingStorage.left, DyingStorage.after = change, change % 2 == 1
        with monkeypatch.context() as patched:
            patched.setattr(job, "Storage", DyingStorage)
            try:
                run_load(spark, settings)
            except Killed:
                deaths += 1
            else:
                break
        run_load(spark, settings)
        after_each()
    assert deaths >= 3
    assert not [*Path(settings.folder, "_zkconsumer", "staging").iterdir()]
