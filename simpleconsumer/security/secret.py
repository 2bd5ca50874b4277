"""Secrets in texts of settings, and the error of a security setting.

Secrets in texts of settings: they are not shown, and are texts that can be sent.

The error of a setting for TLS or SASL that cannot be used.
"""

from __future__ import annotations

from typing import Final


class WrongSecuritySetting(ValueError):  # noqa: N818 - names the fault
    """A setting for TLS or SASL, or the file that it names, cannot be used; its text has no secret.

    Attributes:
        setting: Kafka's name of it.
        reason: The fault, as a clause.
    """

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(setting, reason)
        self.setting = setting
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.setting}: {self.reason}"


NOT_UTF8: Final = "it has bytes or characters that cannot be UTF-8, which can come from the environment"


class Secret(str):
    """A text whose repr is `***`, also within others: `vars(...)`, `asdict(...)`, the arguments of an error.

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
