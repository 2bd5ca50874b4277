"""The command line of mirrors: what is missing or wrong is said in a sentence, and nothing hangs."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tests.cli.forked_commands import commands
from zkconsumer.cli.program import program

VERBS = ("run", "plan", "status", "audit")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["mirror", *arguments])


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("verb", VERBS)
def test_both_clusters_have_to_be_named(verb: str) -> None:
    for given, missing in (
        ([], "Nothing names the source"),
        (["--from-brokers", "a:1"], "Nothing names the target"),
    ):
        found = call(verb, *given)
        assert (found.exit_code, missing in found.output) == (2, True), found.output


@pytest.mark.parametrize("verb", VERBS)
def test_brokers_that_do_not_answer_are_named(verb: str, closed_port: int) -> None:
    ran = commands().run(
        ["mirror", verb, "--from-brokers", f"127.0.0.1:{closed_port}", "--to-brokers", f"127.0.0.1:{closed_port}"],
        stdin=b"",
        timeout_s=60.0,
    )
    said = ran.stderr.decode()
    assert ran.returncode == 1
    assert f"127.0.0.1:{closed_port}" in said
    assert "Traceback" not in said
    assert "bug in zkconsumer" not in said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rename", "x"], "'x' is not key=value"),
        (["--whitelist", "("], "("),
        (["--to-brokers", "nonsense"], "nonsense"),
        (["--from", "nowhere"], "nowhere"),
        (["--timestamps", "mine"], "'mine' is not one of"),
    ],
)
def test_a_wrong_value_is_named(options: list[str], sentence: str) -> None:
    to = [] if "--to-brokers" in options else ["--to-brokers", "127.0.0.1:1"]
    given = ["mirror", "plan", "--from-brokers", "127.0.0.1:1", *to, *options]
    ran = commands().run(given, stdin=b"", timeout_s=60.0)
    said = ran.stderr.decode()
    assert ran.returncode in (1, 2)
    assert sentence in said
    assert "Traceback" not in said
    assert "bug in zkconsumer" not in said
