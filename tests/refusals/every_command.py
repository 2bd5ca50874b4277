"""All commands of the command line that connect, with arguments that make them do their work.

A new command is found by itself: it is called with the words of `WORDS` for what it requires. One that needs more says
so in `MORE`. A command without the option `--zookeeper` is listed in `OFFLINE`, or the tests fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from tests.cli.forked_commands import commands
from zkconsumer.cli.program import program

TIMEOUT_S = 60.0
AT_ONCE = 12
"""They mostly wait."""
LINE = b"/consumers/group/offsets/topic/0:1\n"
"""What the commands read from stdin: a line of `offsets import`, and a message of `produce`."""

OFFLINE = {
    "cluster up", "cluster versions", "compact-files", "completion", "demo", "spark-zip", "check-config", "log list",
    "log check", "log dump", "log groups",
}  # fmt: skip
"""Commands that connect to no cluster that exists already."""

OF_TWO_CLUSTERS = {"mirror run", "mirror plan", "mirror status", "mirror audit"}
"""Commands that have no option `--zookeeper`, as they name two clusters: `tests/mirror/test_mirror_command.py`."""

WORDS = {
    "group": "group", "groups": "group", "topic": "topic", "topics": "topic", "names": "group", "partition": "0",
    "partitions": "1", "file": str(Path(__file__).parent / "no_rules.json"),
}  # fmt: skip
"""The values of required arguments and options, by their names."""

MORE: Mapping[str, Sequence[str]] = {
    "consume": ["--topic", "topic", "--group", "group", "--timeout-ms", "3000", "--max-messages", "1"],
    "exporter": ["--port", "0"],
    "lag": ["--all"],
    "load": ["--topic", "topic", "--to", "/nowhere/to"],
    "verify": ["--patience", "0.1"],
    "offsets set": ["--topic", "topic", "--to", "0"],
    "offsets import": ["--input-file", "-"],
    "topics set": ["--topic-config", "flush.ms=5", "--dry-run"],
    "topics cut": ["--before", "0"],
    "acls create": ["--resource", "topic:topic", "--principal", "User:alice", "--operation", "read"],
    "acls delete": ["--all"],
}
"""What a command is given instead of its required options alone."""

SERVICES = {"exporter"}
"""Commands that run until a signal, and go on after a refusal, which they log: it is their sentence."""


@dataclass(frozen=True)
class Ran:
    """How a command ended.

    Attributes:
        returncode: Its exit status; negative after a signal.
        stdout, stderr: What it wrote.
    """

    returncode: int
    stdout: str
    stderr: str


def every_command() -> list[str]:
    """The names of all commands that connect, such as `offsets get`."""
    return [" ".join(path) for path, found in _leaves(program) if " ".join(path) not in OFFLINE | OF_TWO_CLUSTERS]


def _leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from _leaves(found, (*path, name))
        else:
            yield (*path, name), found


def found_command(name: str) -> click.Command:
    return {" ".join(path): found for path, found in _leaves(program)}[name]


def arguments_of(name: str) -> list[str]:
    """A call of the command, without the options of the connection."""
    called = name.split()
    more = list(MORE.get(name, ()))
    for parameter in found_command(name).params:
        if not parameter.required or parameter.opts[0] in more:
            continue
        assert parameter.name in WORDS, f"say in MORE how `{name}` is called: it requires {parameter.opts[0]}"
        word = WORDS[parameter.name]
        called += [word] if isinstance(parameter, click.Argument) else [parameter.opts[0], word]
    return called + more


def run_all(names: Sequence[str], *options: str, environment: Mapping[str, str] | None = None) -> dict[str, Ran]:
    """Run commands as processes, several at a time, each with more options."""

    def run(name: str) -> Ran:
        return run_one(name, *options, environment=environment)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(names, pool.map(run, names), strict=True))


def run_one(name: str, *options: str, environment: Mapping[str, str] | None = None) -> Ran:
    """Run one command as a process; one that would go on is ended once it has written its first line on stderr."""
    ran = commands().run(
        [*arguments_of(name), *options], stdin=LINE, timeout_s=TIMEOUT_S, until_logged=name in SERVICES,
        environment=environment,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
