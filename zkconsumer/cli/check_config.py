"""`zkconsumer check-config`: says what each line of the properties file of a consumer or a producer will do.

Nothing is connected, and files that settings name are not opened.
"""

from __future__ import annotations

import sys

import click

from zkconsumer.admin.values import count_of
from zkconsumer.cli.terminal import CliError, print_table
from zkconsumer.config.file_check import CheckedLine, FileCheck, check_properties
from zkconsumer.config.properties import decode_properties, parse_properties, warn_of_exposed_secrets

_MOST_BYTES = 256 * 1024
_EPILOG = """\
\b
FILE is a properties file of Java's consumer or producer (Kafka 0.7 or 0.8); - is stdin. The names of the settings
show whether it is a consumer's or a producer's, unless --for says so. Passwords are not printed.

\b
error    the consumer (or producer) rejects the file
warning  the line has another effect than it says
note     worth knowing

\b
Status 0: no errors and no warnings. Status 1: an error or a warning, or the file cannot be read.

\b
Example:
  zkconsumer check-config consumer.properties
"""


@click.command("check-config", epilog=_EPILOG)
@click.argument("path", metavar="FILE")
@click.option(
    "--for", "program", type=click.Choice(["consumer", "producer"]), help="Whose settings FILE has. [by their names]"
)
@click.option("--defaults", is_flag=True, help="Also print the settings that FILE does not have, with their values.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the values of all settings.")
def check_config(path: str, program: str | None, defaults: bool, as_json: bool) -> None:
    """Check a properties file line by line.

    Prints the setting that each line of FILE sets, the value in force, and the faults of the line.
    """
    name = "standard input" if path == "-" else path
    data = _read(path, name)
    try:
        text = decode_properties(data)
        found = check_properties(text, program)
    except ValueError as error:
        raise CliError(f"{name} is not a properties file: {error}") from None
    if path != "-":
        warn_of_exposed_secrets(path, parse_properties(text))
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found, defaults)
    if not found.is_good:
        raise click.exceptions.Exit(1)


def _read(path: str, name: str) -> bytes:
    if path == "-":
        if sys.stdin is None:
            raise CliError("standard input is closed")
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    else:
        try:
            with open(path, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            raise CliError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _MOST_BYTES:
        raise CliError(
            f"{name} is larger than {_MOST_BYTES} bytes", "give the properties file of a consumer or a producer"
        )
    return data


def _print(found: FileCheck, defaults: bool) -> None:
    if found.lines:
        rows = [[str(each.line), each.name, _setting(each), _effect(each)] for each in found.lines]
        marked = [number for number, each in enumerate(found.lines) if each.status != "used"]
        print_table(["LINE", "NAME", "SETTING", "VALUE IN FORCE"], rows, right=[0], marked=marked)
    else:
        click.echo("The file has no settings.")
    if defaults and found.values:
        click.echo()
        others = [each for each in found.values if each.line is None]
        print_table(["NOT IN THE FILE", "VALUE IN FORCE"],
                    [[each.setting, _amount(each.value or "none", each.unit)] for each in others])  # fmt: skip
    if found.findings:
        click.echo()
    for finding in found.findings:
        place = "" if finding.line is None else f", line {finding.line}"
        color = {"error": "red", "warning": "yellow"}.get(finding.severity)
        click.echo(f"{click.style(finding.severity, fg=color)}{place}: {finding.sentence}")
    if found.program != "consumer":
        click.echo(f"\nThese are the settings of a {found.program}.")
    counts = [count_of(sum(each.severity == kind for each in found.findings), kind) for kind in ("error", "warning")]
    click.echo(f"\n{count_of(len(found.lines), 'line')}, {', '.join(counts)}")


def _setting(line: CheckedLine) -> str:
    return "-" if line.setting is None else line.setting if line.setting != line.name else "same"


def _effect(line: CheckedLine) -> str:
    if line.value is None:
        return line.status
    return _amount(line.value, line.unit) + (", the default" if line.is_default else "")


def _amount(value: str, unit: str | None) -> str:
    """Return a value with its unit, and in a larger unit where that is easier to read.

    >>> _amount("90000", "ms")
    '90000 ms = 1.5 min'
    """
    if unit is None or not value.removeprefix("-").isdigit():
        return value
    for size, name in _LARGER[unit]:
        if int(value) >= size:
            larger = f"{int(value) / size:.3g}"
            return f"{value} {unit} = {larger} {name}" if float(larger) * size == int(value) else f"{value} {unit}"
    return f"{value} {unit}"


_LARGER = {
    "ms": ((3_600_000, "h"), (60_000, "min"), (1000, "s")),
    "bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
}
