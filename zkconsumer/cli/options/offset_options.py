"""The option `--store` of the commands that read or change offsets, and the lines in which they print changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from zkconsumer.admin import OffsetChanges
from zkconsumer.admin.offsets.store_choice import KAFKA
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.terminal.tables import shown_group
from zkconsumer_error import printable

__all__ = ["CHANGED_STORES", "print_changes", "print_warning", "refuse_other_stores", "store_option"]

Command = TypeVar("Command", bound=Callable[..., Any])
CHANGED_STORES = (
    "Change offsets in this store. [where the group has offsets; ZooKeeper if it has none]"
)


def store_option(stores: Sequence[str], description: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the option `--store`; its parameter `store` is None without it.

    Args:
        stores: What may be chosen.
        description: The option's help.
    """
    return click.option("--store", type=click.Choice(stores), help=description)


def refuse_other_stores(store: str | None) -> None:
    """Raise if offsets of a group that brokers coordinate are to be somewhere else than in Kafka.

    Raises:
        click.UsageError: Names the store.
    """
    if store not in (None, KAFKA):
        raise click.UsageError(f"--store is {store}, but a group that brokers coordinate has its offsets in Kafka.")


def print_warning(sentence: str) -> None:
    """Print a warning to standard error."""
    click.echo(f"warning: {printable(sentence)}", err=True)


def print_changes(found: OffsetChanges, as_json: bool, done: str = "set") -> None:
    """Print a line for each change, under the name of its group, or one JSON object.

    Args:
        done: What was done to the offsets.
    """
    for note in found.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if as_json:
        click.echo(found.to_json())
        return
    names_store = len({change.store for change in found.changes}) > 1
    for change in found.changes:
        click.echo(printable(f"{shown_group(change.group)} {change.line(names_store)}"))
    needed = sum(change.is_needed for change in found.changes)
    verb = done if found.written else f"would be {done}"
    click.echo(f"{count_of(needed, 'offset')} {verb}, {len(found.changes) - needed} unchanged", err=True)
