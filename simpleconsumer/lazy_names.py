"""Gives a package names that are imported when they are first used, so that a program loads only what it needs.

Pure.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy_names(package: str, names: Mapping[str, Iterable[str]], modules: Iterable[str] = ()) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562).

    None of the names may be that of a module of the package: importing that module would take its place.

    Args:
        package: Name of the package.
        names: Module -> its names that the package has, too; of a name that is there twice the last module counts, so
            that the first one can have all that are nowhere else.
        modules: Modules of the package that are its attributes, also before they are imported.
    """
    module_of = {name: module for module, found in names.items() for name in found}
    own = frozenset(modules)

    def look_up(name: str) -> Any:
        if name in own:
            return importlib.import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)  # the next use does not come here
        return value

    return look_up
