"""The compiled kernel, where it was built: checksums and runs of messages, faster than in Python.

Without it, or with `ZKCONSUMER_PURE=1` in the environment, the decoders in Python do the same alone.

Attributes:
    compiled: The extension module; None if there is none, or if it is turned off.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

__all__ = ["IS_FULL", "IS_OVER", "compiled", "description"]

IS_FULL: Final = 1
"""How a run ends that has filled columns: the next message does not fit."""
IS_OVER: Final = 2
"""The same: all that is wanted was read."""

PURE_VARIABLE: Final = "ZKCONSUMER_PURE"


def _load() -> tuple[Any, str]:
    """Return the extension module, or None, and which path is used."""
    if os.environ.get(PURE_VARIABLE, "") not in ("", "0"):
        return None, f"plain Python, as {PURE_VARIABLE} says"
    try:
        return import_module("simpleconsumer.kernel._kernel"), "the compiled kernel"
    except ModuleNotFoundError:
        return None, "plain Python, as the compiled kernel was not built"
    except ImportError as error:
        return None, f"plain Python; the compiled kernel cannot be loaded: {error}"


compiled: Any
compiled, description = _load()
