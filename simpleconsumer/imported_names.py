"""Finds the object that a setting names as `module:name`; only here the package imports an application's names."""

from __future__ import annotations

import importlib
from typing import Any


class NotImported(ValueError):  # noqa: N818 - says what happened
    """Nothing can be imported under a name; the text is a clause that says why."""


def is_place(place: str) -> bool:
    """Return whether a text has the form `package.module:name`."""
    module, separator, name = place.partition(":")
    return bool(separator) and all(part.isidentifier() for part in (*module.split("."), name))


def imported(place: str) -> Any:
    """Return what `package.module:name` names; the module is imported.

    Raises:
        NotImported: The text has another form, there is no such module or name, or the module cannot be imported,
            whatever its code raises; that is the cause then.
    """
    if not is_place(place):
        raise NotImported(f"{place!r} is not module:name")
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise NotImported(f"module {error.name!r} does not exist") from error
    except Exception as error:
        # Any other error of its code may quote data, such as a password.
        said = f": {error}" if isinstance(error, ImportError | SyntaxError) else ""
        raise NotImported(f"module {module!r} cannot be imported: {type(error).__name__}{said}") from error
    try:
        return getattr(found, name)
    except AttributeError as error:
        raise NotImported(f"module {module!r} has no {name!r}") from error
