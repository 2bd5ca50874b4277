"""The command line as a whole: help, usage, and errors that a new user can do something about."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.cli.command_line import TIMEOUT_S, command
from zkconsumer.cli import consume as consume_module
from zkconsumer.cli.program import program
from zkconsumer.config.connection_settings import find_connection_settings
from zkconsumer.testing.processes import free_port

QUICK = ("--property", "zookeeper.connection.timeout.ms=300")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments, prog_name="zkconsumer")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name)


def test_the_test_kit_and_spark_are_loaded_by_the_commands_that_need_them() -> None:
    """They take as long to load as everything else."""
    shown = "import sys, zkconsumer.cli.program; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout.split()
    assert "zkconsumer.cli.program" in loaded
    heavy = ("zkconsumer.testing", "zkconsumer.spark.load", "pyspark", "pyarrow", "numpy")
    assert [name for name in loaded if name.startswith(heavy)] == []


@pytest.mark.parametrize("path", list(commands(program)), ids=" ".join)
def test_help_ends_with_an_example_whose_options_exist(path: tuple[str, ...]) -> None:
    shown = invoke(*path, "--help")
    assert shown.exit_code == 0
    example = re.search(r"Example[^\n]*\n(.*)", shown.output, re.DOTALL)
    assert example is not None
    assert f"zkconsumer {' '.join(path)}" in example[1]
    options = shown.output[: example.start()]
    for option in re.findall(r"(?<= )--[a-z-]+", example[1]):
        assert option in options


def test_the_version_is_printed() -> None:
    how = r"messages are decoded by (the compiled kernel|plain Python.*)"
    assert re.fullmatch(rf"zkconsumer, version \d+\.\d+\.\d+; {how}\n", invoke("--version").output)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["consume", "--zookeeper", "zk:2181"], "Give exactly one of --topic, --whitelist and --blacklist."),
        (["consume", "--zookeeper", "zk:2181", "--topic", "t", "--whitelist", "u"], "Give exactly one of"),
        (["consume", "--topic", "t"], "Missing option '--zookeeper'"),
        (["consume", "--zookeeper", "a/x,b", "--topic", "t"], "the chroot is given once, after the last host"),
        (["consume", "--zookeeper", "zk:2181", "--topic", "t", "--property", "group.id"], "is not key=value"),
        (["produce", "--topic", "t"], "Missing option '--zookeeper'"),
        (["produce", "--zookeeper", "zk:2181", "--topic", "t", "--codec", "zip"], "'zip' is not one of"),
        (["produce", "--topic", "t", "--brokers", "b:9092", "--zookeeper", "zk:2181"], "give one of them"),
        (["produce", "--topic", "t", "--brokers", "b"], "'b' is not host:port"),
        (["produce", "--topic", "t", "--brokers", ""], "'' is not host:port"),
        (["produce", "--topic", "t", "--from-json", "--null", "N", "--brokers", "b:1"], "--null has no effect with"),
        (["produce", "--topic", "t", "--brokers", "b:9092", "--property", "acks"], "'acks' is not key=value"),
        (["produce", "--topic", "t", "--brokers", "b:9092", "--property", "zk.connect=z:1"], "give --zookeeper HOSTS"),
        (["describe", "--zookeeper", "zk:2181"], "Missing argument 'GROUP'"),
        (["cluster", "up", "--topic", "t:x"], "is not name, name:partitions or name:partitions:replication"),
        (["cluster", "up", "--topic", "t:1:3"], "3 replicas need as many brokers; --brokers is 1"),
        (["cluster", "up", "--topic", "t:2001"], "t: 2001 partitions; at most 2000 are possible"),
        (["cluster", "up", "--topic", "a/b"], "topic 'a/b' has characters other than [a-zA-Z0-9._-]"),
        (["cluster", "up", "--topic", "t" * 256], "256 characters; 1 to 255 are allowed"),
        (
            ["cluster", "up", "--topic", "t" * 254 + ":9"],
            "topic name of 254 characters: with the number of a partition",
        ),
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["release", "--bootstrap-server", "b:9092"], "'--bootstrap-server': this command needs ZooKeeper"),
        (["produce", "--broker-list", "b:9092"], "'--broker-list': it is called --brokers here"),
        (["consume", "--broker-list", "b:9092"], "'--broker-list': it is called --bootstrap-server here"),
        (["produce", "--message-send-max-retries", "3"], "it is called --retries here"),
        (["consume", "--consumer.config", "f"], "'--consumer.config': it is called --config here."),
        (["consume", "--consumer-property", "a=b"], "'--consumer-property': it is called --property here."),
        (["offsets", "set", "g", "--to-earliest"], "'--to-earliest': it is called --to earliest here."),
        (["topics", "--describe"], "'--describe': use `zkconsumer describe GROUP` or `zkconsumer topics NAME`."),
        (["groups", "--to-earliest"], "No such option"),
        (["groups", "--jsn"], "Did you mean"),
    ],
)
def test_options_of_kafkas_own_tools_are_named_as_they_are_called_here(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "it is called --to" not in result.stderr or arguments[0] == "offsets"


def options_with_a_value(path: tuple[str, ...]) -> list[click.Option]:
    found: click.Command = program
    for name in path:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    return [each for each in found.params if isinstance(each, click.Option) and not (each.is_flag or each.count)]


@pytest.mark.parametrize("path", list(commands(program)), ids=" ".join)
def test_an_option_that_is_given_twice_counts_twice_or_is_refused(path: tuple[str, ...]) -> None:
    for option in options_with_a_value(path):
        name = option.opts[0]
        if option.multiple:
            continue
        result = invoke(*path, name, "1", f"{name}=2")
        assert result.exit_code == 2, name
        assert f"Option '{name}' is given 2 times, but has one value." in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "--group", "a", "--group", "a", "--help"],
        ["groups", "--json", "--json", "--help"],
        ["offsets", "--help"],
    ],
)
def test_help_is_shown_whatever_is_repeated(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "--zookeeper", "z", "--topic", "t", "--property", "group.id=a", "--property", "group.id=b"],
        ["load", "--zookeeper", "z", "--topic", "t", "--to", "/f", "--option", "a=1", "--option", "a=2"],
    ],
)
def test_a_name_that_is_given_two_values_is_refused(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "is given twice with different values" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "a/b"], "topic 'a/b' has characters other than [a-zA-Z0-9._-]"),
        (["--topic", "t", "--group", "a/b"], "group.id is 'a/b'; it must be 1 to 255 of [a-zA-Z0-9._-]"),
        (["--whitelist", "("], "topic filter '(' at position 0: this group is not closed"),
        (["--topic", "t", "--property", "fetch.min.bytes=x"], "fetch.min.bytes is 'x'; it must be an integer from 0"),
        (["--topic", "t", "--property", "auto.commit.enable=maybe"], "auto.commit.enable is 'maybe'; it must be"),
        (["--topic", "t", "--consumer-config", "/no/file"], "the consumer config /no/file cannot be read: No such"),
    ],
)
def test_a_wrong_value_is_one_sentence_and_status_1(arguments: list[str], said: str) -> None:
    result = invoke("consume", "--zookeeper", f"127.0.0.1:{free_port()}", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"zkconsumer: {said}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_no_zookeeper_is_reported_with_what_was_found_there() -> None:
    port = free_port()
    result = invoke("consume", "--zookeeper", f"127.0.0.1:{port}", "--topic", "t", *QUICK)
    assert result.exit_code == 1
    assert result.stderr == (
        f"zkconsumer: no ZooKeeper server answered at 127.0.0.1:{port} within 0.3 s; is it running there? "
        f"(127.0.0.1:{port}: connection refused)\n"
    )


def test_settings_of_a_file_are_overridden_by_property_and_option(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("zk.connect=file:1\ngroupid=file\nfetch.size=10\nautocommit.interval.ms=7\n")
    found = find_connection_settings("option:2", str(file))
    options = {"zookeeper": found.zookeeper, "group": None, "timeout_ms": None, "from_beginning": False}
    config, auto_commit, generated = consume_module._config(found, options, {"fetch.message.max.bytes": "20"})
    assert (config.zookeeper_connect, config.group_id) == ("option:2", "file")
    assert (config.fetch_message_max_bytes, config.auto_commit_interval_ms) == (20, 7)
    assert auto_commit
    assert not generated


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    result = invoke("consume", "--zookeeper", f"127.0.0.1:{free_port()}", "--topic", "t", *QUICK,
                    "--property", "auto.offset.rest=smallest")  # fmt: skip
    assert (result.exit_code, result.stderr) == (
        1, "zkconsumer: unknown setting 'auto.offset.rest'; did you mean 'auto.offset.reset'?\n",
    )  # fmt: skip


def test_an_unknown_setting_in_a_file_is_warned_about_with_the_nearest_one(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("auto.offset.rest=smallest\nzk.synctime.ms=2000\n")
    result = invoke("consume", "--zookeeper", f"127.0.0.1:{free_port()}", "--topic", "t", *QUICK,
                    "--config", str(file))  # fmt: skip
    lines = result.stderr.splitlines()
    assert any(
        line.startswith("warning: unknown setting 'auto.offset.rest' is ignored; did you mean") for line in lines
    )
    assert any(line.startswith("warning: settings have names of Kafka 0.7 (zk.synctime.ms) and") for line in lines)
    result = invoke("consume", "--zookeeper", f"127.0.0.1:{free_port()}", "--topic", "t", *QUICK,
                    "--config", str(file), "--from-beginning")  # fmt: skip
    assert "names of Kafka 0.7" not in result.stderr


def test_an_unknown_version_of_kafka_is_refused_with_the_known_ones() -> None:
    result = invoke("cluster", "up", "--kafka", "0.8.9")
    assert result.exit_code == 1
    assert re.match(r"zkconsumer: Kafka 0\.8\.9: known versions are 0\.7\.2, .*0\.8\.2\.2", result.stderr)


def test_the_versions_are_listed() -> None:
    assert re.search(r"^0\.8\.2\.2 +real ", invoke("cluster", "versions").output, re.MULTILINE)


def test_a_fault_of_the_program_is_reported_and_its_place_only_with_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr(consume_module, "_wanted", fail)
    plain = invoke("consume")
    assert plain.exit_code == 1
    assert plain.stderr.startswith("zkconsumer: this is a bug in zkconsumer: RuntimeError: broken inside; ")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in invoke("--debug", "consume").stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["consume", "--help"], ["--version"], ["completion", "bash"], ["cluster", "versions"]],
    ids=" ".join,
)  # fmt: skip
def test_a_standard_output_that_is_full_is_one_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(command(arguments), stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr == b"zkconsumer: standard output: No space left on device\n"


def test_a_standard_output_that_nobody_reads_is_no_fault() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run(
        command(["cluster", "versions"]), stdout=theirs, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False
    )
    os.close(theirs)
    assert ended.stderr == b""


@pytest.mark.parametrize("arguments", [["demo"], ["cluster", "up"], ["consume", "--topic", "t"], ["completion", "zsh"]])
def test_a_standard_output_that_is_closed_is_one_sentence(arguments: list[str]) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command(arguments)]
    ended = subprocess.run(closed, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr == b"zkconsumer: standard output is closed; use `>/dev/null` to discard the output\n"


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full", "2>&- >&- <&-"])
def test_without_a_standard_error_the_status_is_right(closed: str) -> None:
    arguments = command(["cluster", "up", "--kafka", "0.8.9"])
    ended = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *arguments], timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1
