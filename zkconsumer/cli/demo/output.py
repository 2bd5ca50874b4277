"""Prints lines of the demonstration, also when nobody reads them any more."""

from __future__ import annotations

from contextlib import suppress

import click

from zkconsumer.cli.terminal.standard_streams import discard_output

__all__ = ["say", "warn"]


def say(line: str) -> None:
    """Print a line. Nobody may read any more (`| head`): it goes on to its end, which stops all processes in order.

    Raises:
        OSError: standard output cannot be written.
    """
    try:
        click.echo(line)
    except BrokenPipeError:
        discard_output()


def warn(line: str) -> None:
    """Print a line on stderr, if that can be written."""
    with suppress(OSError):
        click.echo(line, err=True)
