"""Sizes on the command line: numbers of bytes with units, as `128MB`."""

from __future__ import annotations

from typing import Any, Final

import click

from zkconsumer.spark.options import parse_bytes

__all__ = ["SIZE"]


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE: Final = _Size()
"""The type of options that take a number of bytes."""
