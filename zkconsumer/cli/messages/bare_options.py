"""The command `consume`, whose options `--partition` and `--offset` have two forms.

With a value they choose what is read: `--partition 3 --offset -5`. Bare, they print the field, as in earlier versions:
`--partition --offset`. The bare forms are the options `--print-partition` and `--print-offset`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import click

__all__ = ["ConsumeCommand"]

_BARE: Final = {"--partition": "--print-partition", "--offset": "--print-offset"}
_VALUE: Final = re.compile(r"(?!-)|-\d")
"""What may be a value: all that is no option, and what starts as a negative number."""


class ConsumeCommand(click.Command):
    """A command that reads a bare `--partition` or `--offset` as the option that prints the field."""

    def make_parser(self, ctx: click.Context) -> Any:
        """Return a parser that replaces the bare forms first."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args
        parser.parse_args = lambda args: parse(args=self._replaced(args))
        return parser

    def _replaced(self, arguments: Sequence[str]) -> list[str]:
        takes_value = {
            name for option in self.params if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }  # fmt: skip
        found: list[str] = []
        at = 0
        while at < len(arguments):
            argument, following = arguments[at], arguments[at + 1 : at + 2]
            if argument in _BARE and not (following and _VALUE.match(following[0])):
                found.append(_BARE[argument])
                at += 1
            elif argument in takes_value:
                found += [argument, *following]
                at += 2
            else:
                found.append(argument)
                at += 1
        return found
