"""The error of a setting for TLS or SASL that cannot be used. Pure."""

from __future__ import annotations

__all__ = ["WrongSecuritySetting"]


class WrongSecuritySetting(ValueError):  # noqa: N818 - says what is wrong
    """A setting for TLS or SASL, or the file that it names, cannot be used; its text has no secret.

    Attributes:
        setting: Kafka's name of it.
        reason: What is wrong.
    """

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(setting, reason)
        self.setting = setting
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.setting}: {self.reason}"
