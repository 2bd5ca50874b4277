"""A group of commands that lists if no command is named, as `zkconsumer topics` and `zkconsumer groups` do."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["ListingGroup"]

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
