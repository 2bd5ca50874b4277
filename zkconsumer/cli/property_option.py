"""The option `--property KEY=VALUE` of `consume` and `produce`: settings by name."""

from __future__ import annotations

from collections.abc import Sequence

import click

from zkconsumer.config.exposed_secrets import warn_of_shown_secrets
from zkconsumer.config.keys import shown_name, shown_pair

__all__ = ["named_values", "refuse_zookeeper"]

_HINT = "--property"


def named_values(pairs: Sequence[str]) -> dict[str, str]:
    """Return the names and values of an option that may be repeated.

    Raises:
        click.BadParameter: One is not `key=value`, or a name has two values.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{shown_pair(pair)!r} is not key=value", param_hint=_HINT)
        if found.setdefault(name.strip(), value) != value:
            raise click.BadParameter(f"{shown_name(name.strip())} is given twice with different values",
                                     param_hint=_HINT)
    warn_of_shown_secrets(found, _HINT)
    return found


def refuse_zookeeper(name: str) -> click.BadParameter:
    """Return the error for a property that names a ZooKeeper.

    The credentials of a file are checked against the ZooKeeper of `--zookeeper`, and sent nowhere else unseen.
    """
    return click.BadParameter(f"{name} names a ZooKeeper: give --zookeeper HOSTS instead", param_hint=_HINT)
