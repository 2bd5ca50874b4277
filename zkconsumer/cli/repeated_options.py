"""Refuses an option that is given twice and takes one value.

click takes the last value and drops the others without a word: `--whitelist a --whitelist b` would read b alone.
Kafka's own tools refuse it, too (joptsimple: "Found multiple arguments for option"). The rule holds for every command,
so that no command has to repeat it; flags, and options that may be repeated, are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

__all__ = ["refuse_repeated_options"]


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
            raise click.UsageError(f"Option '{option.opts[0]}' is given {count} times, and takes one value.", context)
    if below is not None:
        name, deeper, behind = below
        if deeper is not None:
            refuse_repeated_options(deeper, behind, click.Context(deeper, context, name))


def _takes_one_value(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)
