"""Checks the settings of a topic before they are written. Pure.

A broker of 0.8 or 0.9 that reads a value that it cannot parse does not start again, and a name that it does not know
does nothing. So names and values are checked by the version of the oldest broker.

Source: kafka.log.LogConfig (0.8.1 to 3.9).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from zkconsumer.admin.errors import TopicRefused

__all__ = ["as_text", "check_settings", "nearest_setting"]

_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")

_Check = Callable[[str], bool]


def _integer(least: int, most: int) -> _Check:
    return lambda text: _NUMBER.fullmatch(text) is not None and least <= int(text) <= most


def _word(*words: str) -> _Check:
    return lambda text: text in words


def _policy(text: str) -> bool:
    return all(word.strip() in ("delete", "compact") for word in text.split(","))


def _ratio(text: str) -> bool:
    return re.fullmatch(r"[0-9]*\.?[0-9]+", text) is not None and 0 <= float(text) <= 1


def _throttled(text: str) -> bool:
    return text == "*" or re.fullmatch(r"([0-9]+:[0-9]+)?(,[0-9]+:[0-9]+)*", text) is not None


class _Setting(NamedTuple):
    """Since which registration version of brokers it is known, whether a value is allowed, and which values are."""

    since: int
    allows: _Check
    values: str


_08, _09, _010, _0101, _27 = 1, 2, 3, 4, 5
_RELEASES: Final = {_09: "0.9", _010: "0.10", _0101: "0.10.1", _27: "2.7"}


def _whole(since: int, least: int, most: int) -> _Setting:
    return _Setting(since, _integer(least, most), f"an integer from {least} to {most}")


def _choice(since: int, *words: str) -> _Setting:
    return _Setting(since, _word(*words), " or ".join(words))


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "segment.bytes": _whole(_08, 14, _INT),
    "segment.ms": _whole(_08, 1, _LONG),
    "segment.jitter.ms": _whole(_08, 0, _LONG),
    "segment.index.bytes": _whole(_08, 0, _INT),
    "flush.messages": _whole(_08, 1, _LONG),
    "flush.ms": _whole(_08, 0, _LONG),
    "retention.bytes": _whole(_08, -1, _LONG),
    "retention.ms": _whole(_08, -1, _LONG),
    "max.message.bytes": _whole(_08, 0, _INT),
    "index.interval.bytes": _whole(_08, 0, _INT),
    "delete.retention.ms": _whole(_08, 0, _LONG),
    "file.delete.delay.ms": _whole(_08, 0, _INT),
    "min.cleanable.dirty.ratio": _Setting(_08, _ratio, "a number from 0 to 1"),
    "cleanup.policy": _Setting(_08, _policy, "delete or compact (both, with a comma, from Kafka 0.10.1 on)"),
    "unclean.leader.election.enable": _choice(_08, "true", "false"),
    "min.insync.replicas": _whole(_08, 1, _INT),
    "compression.type": _choice(_09, "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "preallocate": _choice(_09, "true", "false"),
    "message.format.version": _Setting(
        _010, lambda text: re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?", text) is not None,
        "a version of Kafka such as 0.10.0",
    ),
    "message.timestamp.type": _choice(_010, "CreateTime", "LogAppendTime"),
    "message.timestamp.difference.max.ms": _whole(_010, 0, _LONG),
    "min.compaction.lag.ms": _whole(_0101, 0, _LONG),
    "max.compaction.lag.ms": _whole(_0101, 1, _LONG),
    "leader.replication.throttled.replicas": _Setting(_0101, _throttled, "* or partition:broker, ..."),
    "follower.replication.throttled.replicas": _Setting(_0101, _throttled, "* or partition:broker, ..."),
    "message.downconversion.enable": _choice(_0101, "true", "false"),
    "message.timestamp.before.max.ms": _whole(_27, 0, _LONG),
    "message.timestamp.after.max.ms": _whole(_27, 0, _LONG),
    "remote.storage.enable": _choice(_27, "true", "false"),
    "local.retention.bytes": _whole(_27, -2, _LONG),
    "local.retention.ms": _whole(_27, -2, _LONG),
}  # fmt: skip


def as_text(value: object) -> str:
    """Return a value as brokers read it."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def nearest_setting(name: str) -> str:
    """Return a clause with the setting that was probably meant; empty for one that is known, or like none."""
    near = [] if name in _SETTINGS else difflib.get_close_matches(name, _SETTINGS, n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def check_settings(settings: Mapping[str, object], registration_version: int) -> dict[str, str]:
    """Return the settings of a topic as texts.

    Args:
        settings: By their names in Kafka.
        registration_version: That of the oldest broker: 1 up to 0.8.2, 2 in 0.9, 3 in 0.10.0, 4 up to 2.6, then 5.

    Raises:
        TopicRefused: A name is unknown, to the brokers or altogether, or a value is not allowed.
    """
    found = {}
    for name, value in settings.items():
        text = as_text(value)
        setting = _SETTINGS.get(name)
        if setting is None:
            remedy = nearest_setting(name) or f"known are {', '.join(_SETTINGS)}"
            raise TopicRefused(f"{name!r} is no setting of a topic", remedy)
        if setting.since > registration_version:
            release = _RELEASES[setting.since]
            raise TopicRefused(f"{name} is a setting of Kafka {release} and later, and an older broker is registered",
                               "leave it out")
        mixed = name == "cleanup.policy" and "," in text and registration_version < _0101
        if mixed or not setting.allows(text):
            raise TopicRefused(f"{name} is {text!r}; it must be {setting.values}")
        found[name] = text
    return found
