"""Runs an example that dies by SIGKILL where it is about to call `commit_offsets()` for the second time.

Arguments: the example and its options.
"""

from __future__ import annotations

import itertools
import os
import runpy
import signal
import sys
from typing import Any

from zkconsumer import ConsumerConnector

commit_offsets = ConsumerConnector.commit_offsets
calls = itertools.count(1)


def commit_or_die(connector: ConsumerConnector, *arguments: Any) -> None:
    if next(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    commit_offsets(connector, *arguments)


ConsumerConnector.commit_offsets = commit_or_die  # type: ignore[method-assign]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
