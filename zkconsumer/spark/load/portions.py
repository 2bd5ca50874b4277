"""A load in portions: several runs of limited size, one after the other, each published by itself.

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

__all__ = ["PORTION", "run_portions"]

PORTION: Final = 1_000_000
"""Messages of a run where time is limited and nothing else is said."""


def run_portions(
    spark: Any,
    settings: LoadSettings,
    tell: Tell = lambda what, done, total: None,
    time_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LoadReport]:
    """Run until about as much is loaded as was there at the begin, and yield what each run came to.

    Without `settings.max_messages` and `time_s` that is one run.

    Args:
        time_s: begin no further run after so long; at least one is made.
        clock: seconds.

    Raises:
        As `run_load`; what was yielded before is published.
    """
    if time_s is not None and settings.max_messages is None:
        settings = replace(settings, max_messages=PORTION)
    began_s = clock()
    wanted: int | None = None
    while True:
        report = run_load(spark, settings, tell)
        yield report
        loaded = sum(each.end - each.start for each in report.partitions)
        wanted = report.left if wanted is None else wanted - loaded
        is_late = time_s is not None and clock() - began_s >= time_s
        if not report.left or not loaded or wanted <= 0 or is_late:
            return
