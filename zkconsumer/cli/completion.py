"""`zkconsumer completion`: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from zkconsumer.cli.failures import CliError

__all__ = ["completion"]

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
