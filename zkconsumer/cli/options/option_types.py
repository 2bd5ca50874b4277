"""The types of options, and the refusal of an option that is given twice and takes one value.

click takes the last value and drops the others without a word: `--whitelist a --whitelist b` would read b alone.
Kafka's own tools refuse it, too (joptsimple: "Found multiple arguments for option"). The rule holds for every command,
so that no command has to repeat it; flags, and options that may be repeated, are left alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from rebalance.zookeeper.znodes_07 import is_partition
from zkconsumer.config.exposed_secrets import warn_of_shown_secrets
from zkconsumer.config.tables.keys import shown_name, shown_pair

__all__ = [
    "LONGEST_S",
    "NameFilter",
    "PartitionType",
    "Seconds",
    "named_values",
    "refuse_repeated_options",
    "refuse_zookeeper",
]


def refuse_repeated_options(command: click.Command, arguments: Sequence[str], context: click.Context) -> None:
    """Refuse a repeated option of a command, or of the command below it that the arguments name.

    Raises:
        click.UsageError: An option that takes one value is given more than once.
    """
    try:
        _, rest, order = command.make_parser(context).parse_args(list(arguments))
        below = command.resolve_command(context, rest) if isinstance(command, click.Group) and rest else None
    except click.UsageError:
        return  # the command itself reports it, with its own usage line
    if any(option.is_eager and isinstance(option, click.Option) and option.is_flag for option in order):
        return  # --help is shown whatever else is given
    counts = Counter(option for option in order if isinstance(option, click.Option) and _takes_one_value(option))
    for option, count in counts.items():
        if count > 1:
            raise click.UsageError(f"Option '{option.opts[0]}' is given {count} times, but has one value.", context)
    if below is not None:
        name, deeper, behind = below
        if deeper is not None:
            refuse_repeated_options(deeper, behind, click.Context(deeper, context, name))


def _takes_one_value(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)


class PartitionType(click.ParamType[int | str]):
    """Takes `3` and `0-3`."""

    name = "partition"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text.isascii() and text.isdigit() and len(text) <= 19:
            return int(text)
        if not is_partition(text):
            self.fail(f"{text!r} is not a partition: a number such as 3, or in Kafka 0.7 a name such as 0-3", param,
                      ctx)
        return text


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


LONGEST_S: Final = 31_536_000
"""A year. Waits of the operating system end at some 292 years; longer ones raise `OverflowError`."""


class Seconds(click.FloatRange):
    """A number of seconds, at most a year unless `max` says otherwise. `nan` lies within every range of click's."""

    def __init__(self, min: float = 0, max: float = LONGEST_S, min_open: bool = False) -> None:  # noqa: A002
        super().__init__(min=min, max=max, min_open=min_open)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the number.

        Raises:
            BadParameter: It is no number, not finite, or outside of the range.
        """
        number = super().convert(value, parameter, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number of seconds.", parameter, context)
        return number


class NameFilter(click.ParamType[Callable[[str], bool]]):
    """A regular expression that must match the whole name; becomes a function that tests a name."""

    name = "regex"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[str], bool]:
        if callable(value):
            return value
        try:
            pattern = re.compile(str(value))
        except (re.error, OverflowError, RecursionError) as error:
            self.fail(f"{value!r:.200} is not a regular expression: {error}", param, ctx)
        return lambda name: pattern.fullmatch(name) is not None
