"""The common parts of options of several commands: types, refusals, names of Kafka's own tools.

The types of options, and the refusal of an option that is given twice and takes one value.

click takes the last value and drops the others without a word: `--whitelist a --whitelist b` would read b alone.
Kafka's own tools refuse it, too (joptsimple: "Found multiple arguments for option"). The rule holds for every command,
so that no command has to repeat it; flags, and options that may be repeated, are left alone.

A group of commands that lists if no command is named, as `zkconsumer topics` and `zkconsumer groups` do.

Says what options of Kafka's own tools are called here, when a command does not know them.

Source: kafka.tools.ConsoleConsumer, ConsoleProducer, kafka.admin.TopicCommand, ConsumerGroupCommand (0.7.2 to 3.9).

The option `--store` of the commands that read or change offsets, and the lines in which they print changes.

The command `consume`, whose options `--partition` and `--offset` have two forms.

With a value they choose what is read: `--partition 3 --offset -5`. Bare, they print the field, as in earlier versions:
`--partition --offset`. The bare forms are the options `--print-partition` and `--print-offset`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from rebalance.zookeeper.znodes_07 import is_partition
from zkconsumer.admin import OffsetChanges
from zkconsumer.admin.offsets.store_choice import KAFKA
from zkconsumer.admin.values import count_of
from zkconsumer.cli.terminal import shown_group
from zkconsumer.config.properties import warn_of_shown_secrets
from zkconsumer.config.tables.keys import shown_name, shown_pair
from zkconsumer_error import printable


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
            raise click.UsageError(f"Option '{option.opts[0]}' is given {count} times, but has one value.", context)
    if below is not None:
        name, deeper, deeper_order = below
        if deeper is not None:
            refuse_repeated_options(deeper, deeper_order, click.Context(deeper, context, name))


def _takes_one_value(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)


class PartitionType(click.ParamType[int | str]):
    """Takes `3` and `0-3`."""

    name = "partition"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text.isascii() and text.isdigit() and len(text) <= 19:
            return int(text)
        if not is_partition(text):
            self.fail(
                f"{text!r} is not a partition: a number such as 3, or in Kafka 0.7 a name such as 0-3", param, ctx
            )
        return text


_HINT = "--property"


def named_values(pairs: Sequence[str]) -> dict[str, str]:
    """Return the names and values of an option that may be repeated.

    Raises:
        click.BadParameter: One is not `key=value`, or a name has two values.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{shown_pair(pair)!r} is not key=value", param_hint=_HINT)
        if found.setdefault(name.strip(), value) != value:
            raise click.BadParameter(
                f"{shown_name(name.strip())} is given twice with different values", param_hint=_HINT
            )
    warn_of_shown_secrets(found, _HINT)
    return found


def refuse_zookeeper(name: str) -> click.BadParameter:
    """Return the error for a property that names a ZooKeeper.

    The credentials of a file are checked against the ZooKeeper of `--zookeeper`, and sent nowhere else unseen.
    """
    return click.BadParameter(f"{name} names a ZooKeeper: give --zookeeper HOSTS instead", param_hint=_HINT)


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


class NameFilter(click.ParamType[Callable[[str], bool]]):
    """A regular expression that must match the whole name; becomes a function that tests a name."""

    name = "regex"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Callable[[str], bool]:
        if callable(value):
            return value
        try:
            pattern = re.compile(str(value))
        except (re.error, OverflowError, RecursionError) as error:
            self.fail(f"{value!r:.200} is not a regular expression: {error}", param, ctx)
        return lambda name: pattern.fullmatch(name) is not None


_HELP = ("-h", "--help")


class ListingGroup(click.Group):
    """Runs its command `list` unless the first word is one of its commands.

    Attributes:
        takes_names: Names may follow without `list`; else a first word that is no option is a mistyped command.
    """

    takes_names = False

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args
        parser.parse_args = lambda args: parse(self._with_command(ctx, args))  # type: ignore[method-assign]
        return parser

    def _with_command(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            return args if ctx.resilient_parsing else ["list"]  # a shell that completes is shown the commands
        is_list = args[0].startswith("-") or self.takes_names
        return ["list", *args] if is_list and args[0] not in self.commands and args[0] not in _HELP else args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            names = {item.value for item in found}
            options = self.commands["list"].shell_complete(ctx, incomplete)
            found += [item for item in options if item.value not in names]
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["list"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [f"[OPTIONS]{' [NAME]...' if self.takes_names else ''} | COMMAND ..."]


_CALLED: Final[Mapping[str, str]] = {
    "--zkconnect": "--zookeeper",
    "--zk.connect": "--zookeeper",
    "--zookeeper.connect": "--zookeeper",
    "--consumer.config": "--config",
    "--command-config": "--config",
    "--consumer-property": "--property",
    "--delete-consumer-offsets": "--delete-offsets",
    "--include": "--whitelist",
    "--producer.config": "--config",
    "--producer-config": "--config",
    "--producer-property": "--property",
    "--broker-list": "--brokers",
    "--bootstrap-server": "--brokers",
    "--bootstrap-servers": "--brokers",
    "--compression-codec": "--codec",
    "--message-send-max-retries": "--retries",
    "--request-required-acks": "--acks",
    "--shift-by": "--shift",
    "--topic": "--resource topic:NAME",
    "--group": "--resource group:NAME",
    "--cluster": "--resource cluster",
    "--transactional-id": "--resource transactional-id:NAME",
    "--delegation-token": "--resource delegation-token:NAME",
    "--user-principal": "--resource user:TYPE:NAME",
    "--resource-pattern-type": "--pattern-type",
    "--allow-principal": "--principal NAME --permission allow",
    "--deny-principal": "--principal NAME --permission deny",
    "--allow-host": "--host ADDRESS --permission allow",
    "--deny-host": "--host ADDRESS --permission deny",
    "--to-earliest": "--to earliest",
    "--to-latest": "--to latest",
    "--to-offset": "--to OFFSET",
    "--to-datetime": "--to TIME",
}
"""The name of an option here, for commands that have it."""
_CALLED_ELSE: Final[Mapping[str, str]] = {"--broker-list": "--bootstrap-server"}
"""Its name in other commands."""
_BROKERS: Final = "this command needs ZooKeeper; give --zookeeper HOSTS"
_HINTS: Final[Mapping[str, str]] = {
    "--bootstrap-server": _BROKERS,
    "--bootstrap-servers": _BROKERS,
    "--broker-list": _BROKERS,
    "--new-consumer": "--bootstrap-server or --zookeeper chooses the groups; leave it out",
    "--skip-message-on-error": "messages that cannot be read are reported and skipped; leave it out",
    "--retry-backoff-ms": "give --property retry.backoff.ms=N",
    "--request-timeout-ms": "give --property request.timeout.ms=N",
    "--max-memory-bytes": "give --property queue.buffering.max.bytes=N",
    "--sync": "the command waits for the outcome of every line; leave it out",
    "--fetch-size": "give --property fetch.message.max.bytes=N",
    "--list": "use `zkconsumer groups` or `zkconsumer topics`",
    "--describe": "use `zkconsumer describe GROUP` or `zkconsumer topics NAME`",
    "--reset-offsets": "use `zkconsumer offsets set GROUP`",
    "--execute": "changes are written unless --dry-run is given; leave it out",
}


def hint_for_option(option: str, known: Collection[str]) -> str:
    """Return what to give instead of an option that a command does not have, a clause; empty if nothing is known.

    Args:
        option: As it was given, such as `--bootstrap-server`.
        known: The options that the command has.
    """
    for names in (_CALLED, _CALLED_ELSE):
        called = names.get(option)
        if called is not None and called.split()[0] in known:
            return f"it is called {called} here"
    return _HINTS.get(option, "")


Command = TypeVar("Command", bound=Callable[..., Any])
CHANGED_STORES = "Change offsets in this store. [where the group has offsets; ZooKeeper if it has none]"


def store_option(stores: Sequence[str], description: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the option `--store`; its parameter `store` is None without it.

    Args:
        stores: The valid values.
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
        done: The change of the offsets.
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


_BARE: Final = {"--partition": "--print-partition", "--offset": "--print-offset"}
_VALUE: Final = re.compile(r"(?!-)|-\d")
"""A text that may be a value: it is no option, or starts as a negative number."""


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
