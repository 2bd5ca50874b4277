"""What a stream logs on the driver, on stderr.

Spark runs the driver's side of a Python source in a process of its own, in which the program cannot set up logging.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["show_log"]

_LOGGER: Final = "zkconsumer"
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show_log(level: str) -> None:
    """Log from this level on, to stderr unless logging is configured; for `warning` Python's defaults are enough."""
    logger = logging.getLogger(_LOGGER)
    if level == "warning":
        return
    logger.setLevel(level.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
