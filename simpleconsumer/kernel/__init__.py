"""The compiled kernel, where it was built: checksums and runs of messages, faster than in Python.

Without it, or with `ZKCONSUMER_PURE=1` in the environment, the decoders in Python do the same alone.

Attributes:
    compiled: The extension module; None if there is none, or if it is turned off.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Item = TypeVar("Item")
__all__ = ["IS_FULL", "IS_OVER", "chained", "compiled", "description"]

IS_FULL: Final = 1
"""How a run ends that has filled columns: the next message does not fit."""
IS_OVER: Final = 2
"""The same: all that is wanted was read."""

PURE_VARIABLE: Final = "ZKCONSUMER_PURE"
_NAME: Final = "simpleconsumer.kernel._kernel"


def _load() -> tuple[Any, str]:
    """Return the extension module, or None, and which path is used."""
    if os.environ.get(PURE_VARIABLE, "") not in ("", "0"):
        return None, f"plain Python, because {PURE_VARIABLE} is set"
    try:
        try:
            return import_module(_NAME), "the compiled kernel"
        except ModuleNotFoundError:
            found = _from_archive()
        return found, "the compiled kernel" if found else "plain Python, because the compiled kernel was not built"
    except (ImportError, OSError) as error:
        return None, f"plain Python; the compiled kernel cannot be loaded: {error}"


def _from_archive() -> Any:
    """Return the extension module out of the archive that this package is in; None if it holds none for this Python.

    Python imports no extension module from an archive, so it is loaded from a file that is gone afterwards. Executors
    of Spark get the package like that.
    """
    from pathlib import Path  # these take longer to import than the kernel
    from pkgutil import get_data
    from tempfile import TemporaryDirectory

    for suffix in EXTENSION_SUFFIXES:
        file_name = f"_kernel{suffix}"
        try:
            data = get_data(__name__, file_name)
        except OSError:
            continue
        if data is None:
            continue
        with TemporaryDirectory(prefix="zkconsumer-kernel-") as folder:
            path = Path(folder, file_name)
            path.write_bytes(data)
            spec = spec_from_file_location(_NAME, path)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        sys.modules[_NAME] = module
        return module
    return None


compiled: Any
compiled, description = _load()


def chained(runs: Iterator[Iterable[Item]]) -> Iterator[Item]:
    """Return the items of runs, one after the other; a second thread that asks meanwhile gets a ValueError.

    With the kernel no Python code runs between two items of a run.
    """
    if compiled is None:
        return (item for run in runs for item in run)
    together: Iterator[Item] = compiled.Runs(runs)
    return together
