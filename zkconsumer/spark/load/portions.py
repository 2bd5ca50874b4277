"""Loads in portions: several runs of limited size, one after the other, each published by itself.

Source: docs/SPARK_LOADING.md, "Several runs of limited size".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from zkconsumer.spark.load.job import LoadReport, run_load
from zkconsumer.spark.load.job_progress import Tell
from zkconsumer.spark.load.settings import LoadSettings

__all__ = ["PORTION", "limited", "run_portions"]

PORTION: Final = 1_000_000
"""Messages of a run if the time is limited and `max_messages` is not set."""


def limited(settings: LoadSettings, time_s: float | None) -> LoadSettings:
    """Return the settings with a limit for the messages of a run, if the time is limited.

    Raises:
        LoadRefused: A run cannot be limited (Kafka 0.7).
    """
    if time_s is None or settings.max_messages is not None:
        return settings
    return replace(settings, max_messages=PORTION)


def run_portions(
    spark: Any,
    settings: LoadSettings,
    tell: Tell = lambda what, done, total: None,
    time_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LoadReport]:
    """Run until about as much is loaded as was there at the start, and yield the report of each run.

    Without `settings.max_messages` and `time_s` that is one run.

    Args:
        time_s: start no further run after this time; there is at least one run.
        clock: seconds.

    Raises:
        As `run_load`; what was yielded before is published.
    """
    settings = limited(settings, time_s)
    started_s = clock()
    wanted: int | None = None
    while True:
        report = run_load(spark, settings, tell)
        yield report
        loaded = sum(each.end - each.start for each in report.partitions)
        wanted = report.left if wanted is None else wanted - loaded
        is_late = time_s is not None and clock() - started_s >= time_s
        if not report.left or not loaded or wanted <= 0 or is_late:
            return
