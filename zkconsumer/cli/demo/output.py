"""Prints the lines of a demonstration; a reader that goes away does not end it."""

from __future__ import annotations

from contextlib import suppress

import click

from zkconsumer.cli.terminal.standard_streams import discard_output

__all__ = ["say", "warn"]


def say(line: str) -> None:
    """Print a line. When nobody reads any more (`| head`) the demonstration goes on, and stops all processes in order.

    Raises:
        OSError: Standard output cannot be written.
    """
    try:
        click.echo(line)
    except BrokenPipeError:
        discard_output()


def warn(line: str) -> None:
    """Print a line on stderr, if that can be written."""
    with suppress(OSError):
        click.echo(line, err=True)
