"""What brokers and other clients say is printed with control characters escaped; errors of others show no secret."""

from __future__ import annotations

import pytest

from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, CorruptMessage
from zkconsumer.cli.terminal import print_problem, print_table
from zkconsumer.errors import ConfigError, StreamFailed
from zkconsumer.member.leaving import stream_failure
from zkconsumer.testing.errors import KitError
from zkconsumer_error import RemediedError, ZkConsumerError, printable, shown

EVIL = "a\x1b[2J\x9b31m\r\nforged line\x07\u202e\u2028\x7f\udcff"
ESCAPED = r"a\x1b[2J\x9b31m\r\nforged line\x07\u202e\u2028\x7f\udcff"


@pytest.mark.parametrize("text", ["", "plain text", "Größe 1 µs, 日本語 🙂", "a\\b 'c'"])
def test_what_can_be_printed_stays_as_it_is(text: str) -> None:
    assert printable(text) is text


def test_control_characters_are_escaped_as_in_a_repr() -> None:
    assert printable(EVIL) == ESCAPED
    assert printable("a\tb\n\x1b", keep="\n\t") == "a\tb\n\\x1b"
    assert printable(printable(EVIL)) == ESCAPED


@pytest.mark.parametrize(
    "error",
    [
        BrokerError(3, EVIL, 0), ConnectionFailed(EVIL, 9092, "refused"), AuthenticationFailed("b", 9092, EVIL),
        CorruptMessage(EVIL, 0, 1, 2, EVIL), ConfigError("group.id", "x", EVIL), StreamFailed(EVIL),
        ZkConsumerError(EVIL), RemediedError(EVIL, EVIL),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_the_text_of_every_error_is_printable(error: Exception) -> None:
    assert str(error).isprintable()
    assert ESCAPED in str(error)
    assert repr(error).isprintable()


def test_an_error_of_the_kit_may_show_lines_of_a_log() -> None:
    assert str(KitError("the broker has ended:\n\tline\x1b[2J")) == "the broker has ended:\n\tline\\x1b[2J"


def test_an_error_of_others_does_not_show_all_that_it_could_not_encode() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        "tr0ub4dor\udcff".encode()
    for text in (shown(caught.value), str(stream_failure("a thread has failed", caught.value))):
        assert "tr0ub4dor" not in text
        assert "UnicodeEncodeError" in text
        assert "position 9: surrogates not allowed" in text
    assert shown(KeyError("x")) == "KeyError('x')"


def test_tables_and_problems_escape_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["GROUP", "HOST"], [[EVIL, "h"], ["b", EVIL]])
    print_problem(EVIL, f"at: {EVIL}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)
    assert lines[3:] == [f"! {ESCAPED}", f"    at: {ESCAPED}"]
