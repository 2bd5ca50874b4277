"""`zkconsumer acls`: lists, compares, creates and deletes rules of the brokers' access lists.

Source: kafka.admin.AclCommand (0.11 to 3.9), org.apache.kafka.tools.AclCommand (4.3).
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, TypeVar

import click

from simpleconsumer.access_lists import CLUSTER_NAME
from zkconsumer.admin import (
    Acl,
    AclChange,
    AclFilter,
    AclOperation,
    AclPermission,
    AclPlan,
    AclsUnfinished,
    PatternType,
    ResourceType,
)
from zkconsumer.admin.acl_plans import parse_acls
from zkconsumer.admin.values import count_of
from zkconsumer.cli.connection_options import bootstrap_option, open_topic_admin, zookeeper_option
from zkconsumer.cli.option_types import ListingGroup, Seconds
from zkconsumer.cli.terminal import CliError, print_table

_CLIENT_ID = "zkconsumer-acls"
Command = TypeVar("Command", bound=Callable[..., Any])
Resource = tuple[ResourceType, str | None]
_LIST_EPILOG = """\
\b
A rule about TOPIC LITERAL * is about every topic, one about TOPIC PREFIXED click about those whose names start so.
--pattern-type match shows the rules in force for one resource. A rule that denies wins over one that allows.
This needs brokers of Kafka 0.11 or later, with an authorizer (authorizer.class.name).

\b
Examples:
  zkconsumer acls --bootstrap-server b1:9092
  zkconsumer acls list --bootstrap-server b1:9092 --resource topic:clicks --pattern-type match
"""
_CREATE_EPILOG = """\
\b
One rule is created for each resource, principal, host and operation that you give. Rules that exist stay. Brokers
compare the address of a client with the host, never its name. A rule that these brokers never look at is refused, as
far as the requests that they serve show it.

\b
Examples:
  zkconsumer acls create --bootstrap-server b1:9092 --resource topic:clicks --principal User:alice \\
    --operation read --operation describe
  zkconsumer acls create --bootstrap-server b1:9092 --resource group:billing- --pattern-type prefixed \\
    --principal User:alice --operation read --dry-run
"""
_DELETE_EPILOG = """\
\b
The rules are listed first, and each is deleted by itself. With the name of a resource, LITERAL rules are meant unless
--pattern-type says otherwise. A principal without another rule loses the right, unless the brokers allow everybody to
use what no rule is about (allow.everyone.if.no.acl.found).

\b
Example:
  zkconsumer acls delete --bootstrap-server b1:9092 --principal User:alice --dry-run
"""
_PLAN_EPILOG = """\
\b
FILE has the rules you want, as `zkconsumer acls list --json` prints them; - is standard input. In a rule, host may be
left out (*), pattern_type (LITERAL) and permission (ALLOW). The other options say which of the existing rules are
compared; without them, all are. Nothing is changed without --apply, and nothing is deleted without --delete. That
needs one of the other options, or --all.

\b
Examples:
  zkconsumer acls list --bootstrap-server old:9092 --json | zkconsumer acls plan - --bootstrap-server new:9092
  zkconsumer acls plan topics.json --bootstrap-server b1:9092 --resource topic --apply --delete
"""


class _ResourceType(click.ParamType[Resource]):
    """A resource as `TYPE:NAME`, or every resource of a type as `TYPE`."""

    name = "resource"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Resource:
        if isinstance(value, tuple):
            return value
        text, colon, name = str(value).partition(":")
        try:
            kind = ResourceType.of_name(text)
        except ValueError as error:
            self.fail(f"{error}; a resource is TYPE:NAME, such as topic:clicks", param, ctx)
        if kind is ResourceType.CLUSTER:
            return kind, name or CLUSTER_NAME
        return kind, name if colon else None


class _NameType(click.ParamType[Any]):
    """A name of one of Kafka's enumerations, in upper or lower case."""

    def __init__(self, kind: type[AclOperation] | type[AclPermission] | type[PatternType]) -> None:
        self.name = kind.__name__.lower()
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, self._kind):
            return value
        try:
            return self._kind.of_name(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _where_options(command: Command) -> Command:
    """Add the options that all commands have."""
    json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    return zookeeper_option(required=False)(bootstrap_option()(json_option(command)))


def _wait_option(command: Command) -> Command:
    return click.option(
        "--wait-s",
        type=Seconds(min=0, max=86_400),
        default=30.0,
        show_default=True,
        help="How long to wait until each broker knows of the change, in seconds; 0 does not wait.",
    )(command)


_RESOURCE_HELP: Final = "TYPE:NAME, such as topic:clicks, group:billing, cluster, transactional-id:t"
_FILTER_NAMES: Final = ("resource", "pattern_type", "principal", "host", "operation", "permission")


def _filter_options(command: Command, of_a_name: PatternType = PatternType.ANY) -> Command:
    """Add the options that say which rules are meant; the command gets one parameter `within`.

    Args:
        of_a_name: The pattern type where a resource is named, unless one is given.
    """
    default = "[any]" if of_a_name is PatternType.ANY else f"any. [{of_a_name.name.lower()} with a name, otherwise any]"

    @functools.wraps(command)  # with the options that it has already
    def with_filter(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in _FILTER_NAMES}
        return command(*args, within=_filter_of(given, of_a_name), **kwargs)

    for option in (
        click.option("--permission", type=_NameType(AclPermission), metavar="NAME", help="allow or deny."),
        click.option("--operation", type=_NameType(AclOperation), metavar="NAME",
                     help="This operation in the rule, such as read or all."),
        click.option("--host", metavar="ADDRESS", help="This host in the rule."),
        click.option("--principal", metavar="TYPE:NAME", help="This principal in the rule, such as User:alice."),
        click.option("--pattern-type", type=_NameType(PatternType), metavar="NAME",
                     help=f"literal or prefixed; match: the rules in force for the resource; {default}"),
        click.option("--resource", type=_ResourceType(), metavar="TYPE[:NAME]",
                     help=f"{_RESOURCE_HELP}; topic: every topic."),
    ):  # fmt: skip
        with_filter = option(with_filter)
    return with_filter  # type: ignore[return-value]


def _literal_filter_options(command: Command) -> Command:
    """Add the same, for a command that means LITERAL rules where a resource is named."""
    return _filter_options(command, PatternType.LITERAL)


def _filter_of(given: dict[str, Any], of_a_name: PatternType) -> AclFilter:
    kind, name = given["resource"] or (ResourceType.ANY, None)
    pattern = given["pattern_type"] or (PatternType.ANY if name is None else of_a_name)
    if pattern is PatternType.MATCH and name is None:
        raise click.UsageError("--pattern-type match needs the name of a resource: --resource TYPE:NAME.")
    return AclFilter(
        kind, name, given["principal"], given["operation"] or AclOperation.ANY,
        given["permission"] or AclPermission.ANY, given["host"], pattern,
    )  # fmt: skip


@click.group(cls=ListingGroup, no_args_is_help=False, epilog=_LIST_EPILOG)
def acls() -> None:
    """List the rules of the brokers' access lists; compare, create or delete some.

    Without a command, all rules are listed.
    """


@acls.command("list", epilog=_LIST_EPILOG)
@_where_options
@_filter_options
def list_acls(zookeeper: str | None, brokers: str | None, as_json: bool, within: AclFilter) -> None:
    """List rules: who may, or may not, do what to which resource."""
    with open_topic_admin(zookeeper, brokers, _CLIENT_ID) as admin:
        found = admin.acls(within)
    if as_json:
        click.echo(found.to_json())
        return
    click.echo(count_of(len(found.acls), "rule"))
    _print_rules([("", acl) for acl in found.acls])


@acls.command("create", epilog=_CREATE_EPILOG)
@_where_options
@click.option(
    "--resource",
    "resources",
    type=_ResourceType(),
    metavar="TYPE:NAME",
    multiple=True,
    required=True,
    help=f"{_RESOURCE_HELP}; may be repeated.",
)
@click.option(
    "--pattern-type",
    type=_NameType(PatternType),
    default="literal",
    metavar="NAME",
    show_default=True,
    help="literal, or prefixed: resources whose names start so (Kafka 2.0 and later).",
)
@click.option(
    "--principal",
    "principals",
    metavar="TYPE:NAME",
    multiple=True,
    required=True,
    help="Whom the rule is about, such as User:alice; User:* is everybody; may be repeated.",
)
@click.option(
    "--host",
    "hosts",
    metavar="ADDRESS",
    multiple=True,
    default=["*"],
    show_default=True,
    help="Address of the clients; may be repeated.",
)
@click.option(
    "--operation",
    "operations",
    type=_NameType(AclOperation),
    metavar="NAME",
    multiple=True,
    required=True,
    help="read, write, describe, all, ...; may be repeated.",
)
@click.option(
    "--permission",
    type=_NameType(AclPermission),
    default="allow",
    metavar="NAME",
    show_default=True,
    help="allow or deny.",
)
@click.option("--dry-run", is_flag=True, help="Check and print everything, and create nothing.")
@_wait_option
def create_acls(
    zookeeper: str | None,
    brokers: str | None,
    resources: Sequence[Resource],
    pattern_type: PatternType,
    principals: Sequence[str],
    hosts: Sequence[str],
    operations: Sequence[AclOperation],
    permission: AclPermission,
    dry_run: bool,
    wait_s: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Create rules, and wait until each broker knows of them."""
    wanted = [
        Acl(kind, _named(kind, name), principal, operation, permission, host, pattern_type)
        for (kind, name), principal, host, operation in itertools.product(resources, principals, hosts, operations)
    ]
    with open_topic_admin(zookeeper, brokers, _CLIENT_ID) as admin, _shown(as_json):
        change = admin.create_acls(*wanted, dry_run=dry_run, wait_s=wait_s)
    _print_change(change, as_json, is_planned=dry_run)


def _named(kind: ResourceType, name: str | None) -> str:
    if name is None:
        raise click.UsageError(f"--resource {kind.name.lower()} has no name: give {kind.name.lower()}:NAME, or "
                               f"{kind.name.lower()}:* for all.")  # fmt: skip
    return name


@acls.command("delete", epilog=_DELETE_EPILOG)
@_where_options
@_literal_filter_options
@click.option("--all", "all_rules", is_flag=True, help="Delete all rules.")
@click.option("--dry-run", is_flag=True, help="Print which rules are meant, and delete nothing.")
@_wait_option
def delete_acls(
    zookeeper: str | None,
    brokers: str | None,
    within: AclFilter,
    all_rules: bool,
    dry_run: bool,
    wait_s: float,
    as_json: bool,
) -> None:
    """Delete the rules that the options mean, and wait until no broker knows of them."""
    _check_bounded(within, all_rules)
    with open_topic_admin(zookeeper, brokers, _CLIENT_ID) as admin, _shown(as_json):
        change = admin.delete_acls(within, dry_run=dry_run, wait_s=wait_s)
    _print_change(change, as_json, is_planned=dry_run)


def _check_bounded(within: AclFilter, all_rules: bool) -> None:
    """Refuse to delete rules unless it is said which, or that all are meant."""
    if all_rules == (within != AclFilter()):
        raise click.UsageError("Give options that say which rules are deleted, or --all.")


@acls.command("plan", epilog=_PLAN_EPILOG)
@click.argument("file", type=click.File("rb"))
@_where_options
@_filter_options
@click.option("--apply", "is_applied", is_flag=True, help="Create the rules that are missing.")
@click.option("--delete", "deletes", is_flag=True, help="With --apply: delete the rules that are not in FILE.")
@click.option("--all", "all_rules", is_flag=True, help="With --delete: compare all rules, also with an empty FILE.")
@click.option("--check", is_flag=True, help="End with status 1 if something is to be created or deleted.")
@_wait_option
def plan_acls(
    file: IO[bytes],
    zookeeper: str | None,
    brokers: str | None,
    within: AclFilter,
    is_applied: bool,
    deletes: bool,
    all_rules: bool,
    check: bool,
    wait_s: float,
    as_json: bool,
) -> None:
    """Compare the rules in FILE with those that there are; with --apply, create what is missing."""
    if deletes and not is_applied:
        raise click.UsageError("--delete is for --apply. Without it, what would be deleted is printed.")
    if check and is_applied:
        raise click.UsageError("--check and --apply exclude each other.")
    if all_rules and not deletes:
        raise click.UsageError("--all is for --delete. Without options, all rules are compared.")
    if deletes:
        _check_bounded(within, all_rules)
    wanted = _wanted(file)
    if deletes and not wanted and not all_rules:
        raise click.UsageError(f"{getattr(file, 'name', '-')} has no rules. Delete what the options mean with "
                               "`zkconsumer acls delete`, or give --all instead of them.")  # fmt: skip
    with open_topic_admin(zookeeper, brokers, _CLIENT_ID) as admin, _shown(as_json):
        planned = admin.plan_acls(wanted, within)
        if is_applied:
            change = admin.apply_acls(planned, delete=deletes, wait_s=wait_s)
    if is_applied:
        _print_change(change, as_json, is_planned=False)
        return
    _print_plan(planned, as_json)
    if check and not planned.is_empty:
        raise click.exceptions.Exit(1)


_MOST_BYTES: Final = 64 * 1024 * 1024


def _wanted(file: IO[bytes]) -> list[Acl]:
    name = getattr(file, "name", "-")
    try:
        data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise CliError(f"{name} has more than {_MOST_BYTES} bytes", "give the rules in parts")
        return parse_acls(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise CliError(f"{name} has no rules of access lists: {error}",
                       "write it as `zkconsumer acls list --json` prints them") from None  # fmt: skip


# -- output ------------------------------------------------------------------------------------------------------------


@contextmanager
def _shown(as_json: bool) -> Iterator[None]:
    """Print what a change has done also if it could not do all of it."""
    try:
        yield
    except AclsUnfinished as error:
        _print_change(error.change, as_json, is_planned=False)
        raise


def _print_change(change: AclChange, as_json: bool, *, is_planned: bool) -> None:
    if as_json:
        click.echo(change.to_json())
        return
    would = "would be " if is_planned else ""
    parts = [f"{count_of(len(rules), 'rule')} {would}{verb}" for rules, verb in (
        (change.acls_created, "created"), (change.acls_deleted, "deleted")
    ) if rules]  # fmt: skip
    parts += [f"{len(change.unchanged)} unchanged"] if change.unchanged else []
    click.echo(", ".join(parts) or "0 rules changed")
    _print_rules([("+", acl) for acl in change.acls_created] + [("-", acl) for acl in change.acls_deleted])


def _print_plan(planned: AclPlan, as_json: bool) -> None:
    if as_json:
        click.echo(planned.to_json())
        return
    click.echo(f"{count_of(len(planned.to_create), 'rule')} to create, {len(planned.to_delete)} to delete, "
               f"{len(planned.unchanged)} unchanged")  # fmt: skip
    _print_rules([("+", acl) for acl in planned.to_create] + [("-", acl) for acl in planned.to_delete])


def _print_rules(rows: Sequence[tuple[str, Acl]]) -> None:
    """Print rules as a table, with a mark before each unless none has one."""
    if not rows:
        return
    click.echo()
    is_marked = any(mark for mark, _ in rows)
    headers = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
    cells = [
        [*([mark] if is_marked else []), acl.resource_type.name, acl.resource_name, acl.pattern_type.name,
         acl.principal, acl.host, acl.operation.name, acl.permission.name]
        for mark, acl in rows
    ]  # fmt: skip
    print_table(["", *headers] if is_marked else headers, cells)
