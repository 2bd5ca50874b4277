"""Options that are a number of seconds take finite numbers alone."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from zkconsumer.cli.option_types import Seconds
from zkconsumer.cli.program import program


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


OPTIONS = [
    (path, option.opts[-1])
    for path, command in commands(program)
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, click.types.FloatParamType)
]


def test_there_are_such_options() -> None:
    assert len(OPTIONS) >= 8


def test_all_of_them_are_of_the_type() -> None:
    others = [
        (path, option.opts)
        for path, command in commands(program)
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType) and not isinstance(option.type, Seconds)
    ]
    assert others == []


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "-1", "1e12", "soon"])
@pytest.mark.parametrize(("path", "option"), OPTIONS, ids=[" ".join([*path, option]) for path, option in OPTIONS])
def test_what_is_no_such_number_is_refused(path: tuple[str, ...], option: str, value: str) -> None:
    result = CliRunner().invoke(program, [*path, option, value])
    assert result.exit_code == 2, result.output
    assert "Invalid value" in result.output
