"""Options and progress of the commands that start Spark: sizes, settings, a progress bar, interruptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from zkconsumer.config.tables.keys import shown_pair
from zkconsumer.spark.options.option_values import parse_bytes

__all__ = ["SIZE", "interrupted_with", "job_progress", "setting_pairs"]


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


def setting_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the names and values of an option that may be repeated.

    Raises:
        click.BadParameter: One is not of the form NAME=VALUE, or a name is given twice with different values.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{shown_pair(text)!r} is not of the form NAME=VALUE", param_hint=option)
        if pairs.setdefault(name, value) != value:
            raise click.BadParameter(f"{name} is given twice with different values", param_hint=option)
    return pairs


@contextmanager
def interrupted_with(sentence: str) -> Iterator[None]:
    """Print a sentence if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"zkconsumer: {sentence}", err=True)
        raise


@contextmanager
def job_progress(is_silent: bool) -> Iterator[Any]:
    """Yield a function that shows progress: a bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if is_silent or not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield tell
