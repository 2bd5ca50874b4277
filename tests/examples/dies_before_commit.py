"""Runs an example that dies by SIGKILL where it is about to commit news for the second time.

Arguments: the example and its options.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Any

from zkconsumer import ConsumerConnector

commit_offsets = ConsumerConnector.commit_offsets
news: list[int] = [0]
"""How much was read when there was something new to commit."""


def commit_or_die(connector: ConsumerConnector, *arguments: Any) -> None:
    read = sum(each.position or 0 for each in connector.status().owned)
    if read > news[-1]:
        news.append(read)
    if len(news) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    commit_offsets(connector, *arguments)


ConsumerConnector.commit_offsets = commit_or_die  # type: ignore[method-assign]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
