"""The command `zkconsumer`, and its command `completion`.

The command `zkconsumer`: its commands, logging, errors and exit status.

Exit status: 0 done (also after Ctrl-C or SIGTERM and a clean leave, and when the reader of the output is gone), 1
failed, 2 wrong usage, 130 interrupted before there was anything to leave in order. Errors are one sentence on stderr.

`zkconsumer completion`: prints the script with which a shell completes commands and options.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import get_completion_class

from simpleconsumer import kernel
from zkconsumer.cli.acls import acls
from zkconsumer.cli.check_config import check_config
from zkconsumer.cli.cluster import cluster
from zkconsumer.cli.consume import consume
from zkconsumer.cli.demo import demo
from zkconsumer.cli.describe import describe
from zkconsumer.cli.groups import groups, release
from zkconsumer.cli.lag import exporter, lag
from zkconsumer.cli.load import compact_files, load, spark_zip
from zkconsumer.cli.log import log
from zkconsumer.cli.mirror import mirror
from zkconsumer.cli.offsets import offsets
from zkconsumer.cli.option_types import hint_for_option, refuse_repeated_options
from zkconsumer.cli.produce import produce
from zkconsumer.cli.terminal import (
    OUTPUT,
    CliError,
    discard_output,
    is_output_closed,
    prepare_streams,
    sentence_of,
    unblock_signals,
)
from zkconsumer.cli.topics import topics
from zkconsumer.cli.verify import verify
from zkconsumer_error import printable

_SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
\b
Add the script to a file that your shell reads when it starts:
  bash  zkconsumer completion bash >> ~/.bashrc
  zsh   zkconsumer completion zsh >> ~/.zshrc, after compinit
  fish  zkconsumer completion fish > ~/.config/fish/completions/zkconsumer.fish

\b
Example: for the current shell only
  eval "$(zkconsumer completion bash)"
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script with which your shell completes commands and options.

    bash has to be 4.4 or newer.
    """
    root = context.find_root()
    kind = get_completion_class(shell)
    if kind is None:
        raise CliError(f"this version of click has no completion for {shell}", "install click 8.1 or newer")
    name = root.info_name or "zkconsumer"
    # The names that click itself looks for when the shell asks it.
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()
    click.echo(kind(root.command, {}, name, variable).source())


_LINES = "\n\t"
_OURS = ("zkconsumer", "rebalance", "simpleconsumer")
_MAIN_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class _Program(click.Group):
    """Turns errors into one sentence and an exit status, for a shell and for `click.testing` alike."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            refuse_repeated_options(command, rest, click.Context(command, ctx, name))
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        debug = bool(ctx.params.get("debug"))
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _with_hint(error) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError as error:
            if error.filename != OUTPUT:
                raise
            discard_output()  # the reader has enough, as `head` has; a command that had more to do has ended in order
            ctx.exit(0)
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001 - the end of the program: a sentence and a status
            if debug:
                traceback.print_exc()
            _say(sentence_of(error) or _fault(error))
            ctx.exit(1)


def _with_hint(error: click.NoSuchOption) -> click.UsageError:
    """Return the error with what the option of one of Kafka's tools is called here, or as it is."""
    parameters = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    known = {name for parameter in parameters for name in parameter.opts}
    hint = hint_for_option(error.option_name, known)
    return click.UsageError(f"No such option '{error.option_name}': {hint}.", error.ctx) if hint else error


def _say(sentence: str) -> None:
    with suppress(OSError):  # stderr cannot be written; the status is what remains
        click.echo(f"zkconsumer: {printable(sentence, keep=_LINES)}", err=True)


def _fault(error: Exception) -> str:
    return (
        f"this is a bug in zkconsumer: {type(error).__name__}: {error}; `zkconsumer --debug ...` shows where it "
        "happened"
    )


@click.group(cls=_Program, context_settings=_MAIN_HELP)
@click.option("--debug", is_flag=True, help="Log everything, and show tracebacks.")
@click.version_option(
    package_name="zkconsumer",
    prog_name="zkconsumer",
    message=f"%(prog)s, version %(version)s; messages are decoded by {kernel.description}",
)
def program(debug: bool) -> None:
    """Read, send and load messages, and manage consumer groups, on every Kafka from 0.7.0 to 4.3.

    Groups may be coordinated through ZooKeeper (Kafka 0.7 to 3.9) or by the brokers (Kafka 0.9 and later).

    \b
    To try it without a cluster of your own:
      zkconsumer demo
    """
    unblock_signals()
    _set_up_logging(debug)
    if sys.stdout is None and click.get_current_context().invoked_subcommand != produce.name:
        raise CliError("standard output is closed", "use `>/dev/null` to discard the output")


program.add_command(consume)
program.add_command(produce)
program.add_command(describe)
program.add_command(verify)
program.add_command(release)
program.add_command(groups)
program.add_command(lag)
program.add_command(exporter)
program.add_command(offsets)
program.add_command(topics)
program.add_command(acls)
program.add_command(mirror)
program.add_command(compact_files)
program.add_command(check_config)
program.add_command(load)
program.add_command(log)
program.add_command(cluster)
program.add_command(demo)
program.add_command(spark_zip)
program.add_command(completion)


class _SaidByTheCommand(logging.Filter):
    """Drops log lines about the error with which the command ends: the command prints it itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.name == "rebalance.zookeeper.coordinator" and record.levelno == logging.ERROR)


class _Stderr(logging.Handler):
    """Writes to the current stderr, which tests and pipes may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is None:  # closed by the parent process; print() would write to stdout instead
            return
        try:
            print(self.format(record), file=sys.stderr)
        except (OSError, ValueError):  # nobody reads stderr any more; that must not stop anything
            pass


def _set_up_logging(debug: bool) -> None:
    """Log our own warnings to stderr, one line each; not those of the ZooKeeper library, whose events we report."""
    handler = _Stderr()
    if debug:
        handler.setFormatter(_Long("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(_Short())
        handler.addFilter(_SaidByTheCommand())
    for name in (*_OURS, "kazoo"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.DEBUG if debug else logging.WARNING if name in _OURS else logging.CRITICAL)


class _Long(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in the standard library
        record.message = printable(record.message, keep=_LINES)
        return super().formatMessage(record)


class _Short(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {printable(record.getMessage(), keep=_LINES)}"


def main() -> None:
    """Run the command line and exit."""
    prepare_streams()
    try:
        program(prog_name="zkconsumer")
    except SystemExit as end:
        # The reader of a help page is gone: click says 1, and a pipeline with `pipefail` would fail.
        sys.exit(0 if end.code == 1 and is_output_closed() else end.code)
    except OSError as error:  # of the help, which no command has printed
        _say(sentence_of(error) or _fault(error))
        sys.exit(1)
