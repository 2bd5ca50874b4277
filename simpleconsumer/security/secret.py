"""Secrets in texts of settings: they are not shown, and are texts that can be sent."""

from __future__ import annotations

from typing import Final

from simpleconsumer.security.wrong_setting import WrongSecuritySetting

__all__ = ["NOT_UTF8", "Secret", "is_utf8", "secret"]

NOT_UTF8: Final = "it has bytes or characters that cannot be UTF-8, which can come from the environment"


class Secret(str):
    """A text whose repr is `***`, and so are those of what holds it: `vars(...)`, `asdict(...)`, an error's arguments.

    In all else it is the text itself.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded; `os.environ` has halves of characters for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def secret(setting: str, text: str) -> Secret:
    """Return the value of a setting as a secret.

    Raises:
        WrongSecuritySetting: It cannot be encoded. An error from further down would show it.
    """
    if not is_utf8(text):
        raise WrongSecuritySetting(setting, NOT_UTF8)
    return Secret(text)
