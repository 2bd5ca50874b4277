"""Reports the progress of Spark jobs a few times a second.

Threads: one of its own during the block; it asks the JVM and calls `tell`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["Tell", "watched_jobs"]

log = logging.getLogger(__name__)

Tell = Callable[[str, int, int], None]
"""Called with the name of the present step, how much of it is done, and of how much."""
_EVERY_S: Final = 0.25
_END_S: Final = 5.0


@contextmanager
def watched_jobs(spark: Any, what: str, tell: Tell) -> Iterator[None]:
    """Report how many tasks of the jobs that the block starts are done; Ctrl-C cancels the jobs."""
    context = spark.sparkContext
    group = f"zkconsumer-{uuid.uuid4().hex[:8]}"
    context.setJobGroup(group, f"zkconsumer load: {what}", interruptOnCancel=True)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(context, group, what, tell, over), daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        watcher.join(_END_S)
        context.setLocalProperty("spark.jobGroup.id", None)


def _watch(context: Any, group: str, what: str, tell: Tell, over: threading.Event) -> None:
    while not over.wait(_EVERY_S):
        try:
            done, total = _tasks(context.statusTracker(), group)
        except Exception as error:  # noqa: BLE001 - a progress bar that cannot be updated must not stop a load
            log.debug("the progress of %s is not known: %s", what, error)
            continue
        if total:
            tell(what, done, total)


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """Tasks that are done, and all of them, of the jobs of a group."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            of_stage = tracker.getStageInfo(stage)
            if of_stage is not None:
                done += of_stage.numCompletedTasks
                total += of_stage.numTasks
    return done, total
