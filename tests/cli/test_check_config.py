"""`zkconsumer check-config`: what it prints, and with which status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zkconsumer.cli.check_config import _amount
from zkconsumer.cli.program import program

GOOD = "zookeeper.connect=zk1:2181/kafka\ngroup.id=billing\nauto.offset.reset=smallest\nauto.commit.interval.ms=60000\n"


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(program, ["check-config", *arguments], input=stdin, prog_name="zkconsumer")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "consumer.properties"
    path.write_text(GOOD)
    path.chmod(0o600)
    return path


def test_a_good_file(file: Path) -> None:
    result = invoke(str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "LINE  NAME                     SETTING  VALUE IN FORCE\n"
        "   1  zookeeper.connect        same     zk1:2181/kafka\n"
        "   2  group.id                 same     billing\n"
        "   3  auto.offset.reset        same     smallest\n"
        "   4  auto.commit.interval.ms  same     60000 ms = 1 min, the default\n"
        "\n"
        "4 lines, 0 errors, 0 warnings\n"
    )


def test_a_file_with_faults(file: Path) -> None:
    file.write_text("zk.connect=zk1\ngroupid=billing\nauto.ofset.reset=smallest\nfetch.size=1MB\n")
    result = invoke(str(file))
    assert result.exit_code == 1
    assert result.stdout == (
        "LINE  NAME              SETTING                  VALUE IN FORCE\n"
        "   1  zk.connect        zookeeper.connect        zk1\n"
        "   2  groupid           group.id                 billing\n"
        "   3  auto.ofset.reset  -                        ignored\n"
        "   4  fetch.size        fetch.message.max.bytes  refused\n"
        "\n"
        "error, line 4: fetch.message.max.bytes is '1MB'; it must be an integer from 1 to 2147483647\n"
        "warning, line 3: auto.ofset.reset is ignored: no such setting exists; did you mean "
        "'auto.offset.reset'?\n"
        "note: the settings were not checked against each other, because of the errors\n"
        "\n"
        "4 lines, 1 error, 1 warning\n"
    )


def test_standard_input_and_json() -> None:
    result = invoke("-", "--json", stdin=GOOD.encode() + b"client.id=gr\\u00fcn")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["good"]
    assert [each["severity"] for each in found["findings"]] == ["error", "note"]
    result = invoke("-", "--json", stdin=GOOD.encode("utf-8-sig"))
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["good"]
    assert {"setting": "fetch.wait.max.ms", "value": "100", "unit": "ms", "line": None} in found["values"]


def test_the_defaults_are_printed_when_they_are_asked_for(file: Path) -> None:
    shown = invoke(str(file), "--defaults").stdout
    rows = [line.split(None, 1) for line in shown.splitlines()]
    assert ["fetch.message.max.bytes", "1048576 bytes = 1 MiB"] in rows
    assert ["consumer.id", "none"] in rows
    assert ["max.processing.interval.ms", "off"] in rows
    assert shown.count("auto.offset.reset") == 1


def test_no_password_is_printed(file: Path) -> None:
    file.write_text(
        GOOD + "zookeeper.auth=digest:a:hunter2\nzookeeper.sasl.pasword=hunter2\nzookeeper.acl=x:hunter\n"
        "zookeeper.sasl.mechanism=PLAIN\nzookeeper.sasl.username=u\nzookeeper.sasl.password=hunter2\n"
    )
    for arguments in ((), ("--json",), ("--defaults",)):
        result = invoke(str(file), *arguments)
        assert result.exit_code == 1
        assert "hunter2" not in result.output


def test_a_file_with_a_password_that_everybody_reads_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(GOOD + "zookeeper.auth=digest:a:hunter2\n")
    file.chmod(0o644)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == Path(file).owner() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    assert "every user of this machine can read the file (mode 0644): chmod 600" in invoke(str(file)).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "The file has no settings."),
        (b"# only\n! comments\n", "The file has no settings."),
        (b"[consumer]\n", "[consumer] is ignored"),
        (b'{"group.id": "g"}', "is ignored: no such setting exists"),
        (b"\x00\xff\xfe" * 50, "is ignored"),
    ],
)
def test_what_is_no_properties_file_is_told_by_its_lines(text: bytes, said: str) -> None:
    result = invoke("-", stdin=text)
    assert result.exit_code == 1
    assert said in result.stdout
    assert "group.id is not in the file" in result.stdout
    assert result.stdout.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a=1\nb=\\u12", "standard input is not a properties file: line 2: \\u needs four hexadecimal"),
        (b"zookeeper.sasl.password=hunter\\u2\n", "standard input is not a properties file: line 1: \\u needs four"),
        (b"#" * (256 * 1024 + 1), "standard input is larger than 262144 bytes"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: bytes, said: str) -> None:
    result = invoke("-", stdin=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"zkconsumer: {said}")
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = invoke(str(tmp_path / "none"))
    assert (result.exit_code, result.stderr) == (
        1, f"zkconsumer: {tmp_path}/none cannot be read: No such file or directory\n",
    )  # fmt: skip
    assert invoke(str(tmp_path)).stderr == f"zkconsumer: {tmp_path} cannot be read: Is a directory\n"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        ("0", "ms", "0 ms"), ("999", "ms", "999 ms"), ("6000", "ms", "6000 ms = 6 s"),
        ("90000", "ms", "90000 ms = 1.5 min"), ("7200000", "ms", "7200000 ms = 2 h"),
        ("100001", "ms", "100001 ms"), ("-1", "ms", "-1 ms"),
        ("off", "ms", "off"), ("65536", "bytes", "65536 bytes = 64 KiB"), ("2147483647", "bytes", "2147483647 bytes"),
        ("range", None, "range"),
    ],
)  # fmt: skip
def test_amounts(value: str, unit: str | None, shown: str) -> None:
    assert _amount(value, unit) == shown
