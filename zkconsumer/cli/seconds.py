"""The type of options that are a number of seconds: a finite number within bounds."""

from __future__ import annotations

import math
from typing import Any, Final

import click

__all__ = ["LONGEST_S", "Seconds"]

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
