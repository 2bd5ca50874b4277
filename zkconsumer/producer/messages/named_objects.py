"""Encoders, partitioners and handlers that a setting names as `module:name`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from simpleconsumer.imported_names import NotImported, imported
from zkconsumer.errors import ConfigError

__all__ = ["named_object"]

T = TypeVar("T")


def named_object(name: str, setting: str, use: Callable[[Any], T], known: Iterable[str] = ()) -> T:
    """Return what `module:name` names, as it is used; of a class an instance.

    Args:
        name: The value of the setting.
        setting: Names it in the error.
        use: Returns what the object is used as; it raises TypeError for one that cannot be.
        known: What else the setting takes, for the error.

    Raises:
        ConfigError: There is no such module or name, its class makes no instance without arguments, or it is nothing
            that the setting takes.
    """
    try:
        found = imported(name.strip())
    except NotImported as error:
        reason = f" ({error})" if ":" in name else ""
        names = "".join(f"{each}, " for each in known)
        allowed = f"{names}{'or ' if names else ''}module:name of a Python object{reason}"
        raise ConfigError(setting, name, allowed) from error.__cause__
    try:
        made = found() if isinstance(found, type) else found
    except Exception as error:
        reason = f"{found.__name__}() raised {type(error).__name__}: {error}"
        raise ConfigError(setting, name, f"a class that needs no arguments ({reason})") from error
    try:
        return use(made)
    except TypeError as error:
        raise ConfigError(setting, name, f"an object that can be used as {setting} ({error})") from error
