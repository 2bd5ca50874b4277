"""Prints tables: drawn and coloured on a terminal, plain columns anywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence

import click

from zkconsumer_error import printable

__all__ = ["cell", "plain_table", "print_problem", "print_table", "shown_group"]


def cell(number: int | None) -> str:
    """Return a number as the text of a table; a question mark for one that is not known."""
    return "?" if number is None else str(number)


def shown_group(name: str) -> str:
    """Return the name of a group as a shell would be given it: a group without a name is one that brokers know."""
    return printable(name) or "''"


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    marked: Collection[int] = (),
) -> None:
    """Print a table; `right` are the columns with numbers, `marked` the rows with problems."""
    rows = [list(map(printable, row)) for row in rows]
    if not sys.stdout.isatty():
        click.echo(plain_table(headers, rows, right))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number in right else "left", overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*row, style="red" if number in marked else None)
    Console(markup=False, highlight=False).print(table)


def print_problem(sentence: str, *details: str) -> None:
    """Print a problem on a line that starts with `!`, in red on a terminal (unless NO_COLOR is set); then details."""
    lines = "\n    ".join(map(printable, (sentence, *details)))
    click.secho(f"! {lines}", fg=None if os.environ.get("NO_COLOR") else "red")


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return the table as text: columns two spaces apart, no trailing spaces.

    >>> print(plain_table(["TOPIC", "LAG"], [["clicks", "7"]], right=[1]))
    TOPIC   LAG
    clicks    7
    """
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = []
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
