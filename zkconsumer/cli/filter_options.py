"""The values of options that choose groups or topics by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

__all__ = ["NameFilter"]


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
            self.fail(f"{value!r:.200} is no regular expression: {error}", param, ctx)
        return lambda name: pattern.fullmatch(name) is not None
