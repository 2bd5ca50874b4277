"""The types of settings that only producers have: lists of brokers and of topics, and codecs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_ADDRESS: Final = re.compile(r"(?:(?P<id>[0-9]{1,9}):)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:\[\],]+):(?P<port>[0-9]{1,5})")
_CODECS: Final[Mapping[str, str]] = {
    "0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "none": "none", "gzip": "gzip", "snappy": "snappy",
    "lz4": "lz4", "zstd": "zstd", "4": "zstd",
}  # fmt: skip


class BrokerAddress(NamedTuple):
    """A broker of a list.

    Attributes:
        host: Its host, without brackets.
        port: Its port.
        id: Its id, which lists of Kafka 0.7 have; None in other lists.
    """

    host: str
    port: int
    id: int | None = None


@dataclass(frozen=True)
class BrokerList:
    """`host:port` of some brokers between commas; in Kafka 0.7 `id:host:port` of all of them.

    Attributes:
        allowed: The allowed values, in words.
        has_ids: Whether lists of Kafka 0.7 are allowed.
    """

    allowed: str = "host:port, or several separated by commas (in Kafka 0.7 id:host:port)"
    has_ids: bool = True

    def convert(self, value: object) -> tuple[BrokerAddress, ...]:
        if isinstance(value, tuple) and value and all(isinstance(each, BrokerAddress) for each in value):
            return value
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable):
            raise ValueError
        found = tuple(self._address(item) for item in items)
        if not found:
            raise ValueError("the list has no brokers")
        if not self.has_ids and any(address.id is not None for address in found):
            raise ValueError("a broker with an id, as in lists of Kafka 0.7")
        if len({address.id is None for address in found}) > 1:
            raise ValueError("some brokers have an id and others do not")
        return found

    def _address(self, item: object) -> BrokerAddress:
        text = item.strip() if isinstance(item, str) else ""
        parts = _ADDRESS.fullmatch(text)
        if parts is None:
            raise ValueError(f"{item!r} is not host:port")
        port = int(parts["port"])
        if not 1 <= port <= 65535:
            raise ValueError(f"port {port} of {parts['host']} is not from 1 to 65535")
        return BrokerAddress(parts["host"].strip("[]"), port, int(parts["id"]) if parts["id"] else None)

    def format(self, value: object) -> str:
        assert isinstance(value, tuple)
        return shown_brokers(value)


def shown_brokers(brokers: Sequence[BrokerAddress]) -> str:
    """Return a list of brokers as it is written in a setting."""
    return ",".join(
        ("" if each.id is None else f"{each.id}:")
        + (f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}")
        for each in brokers
    )


@dataclass(frozen=True)
class Codec:
    """The name of a codec, or its number in Kafka."""

    allowed: str = "none, gzip, snappy, lz4 or zstd (or 0 to 4)"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the codecs."""
        return tuple(name for name in _CODECS if not name.isdigit())

    def convert(self, value: object) -> str:
        text = str(value).strip().lower() if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if text not in _CODECS:
            raise ValueError
        return _CODECS[text]

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class NameList:
    """Names between commas, or a list of them."""

    allowed: str = "names separated by commas"

    def convert(self, value: object) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable):
            raise ValueError
        names = tuple(item.strip() if isinstance(item, str) else "" for item in items)
        if isinstance(value, str) and not value.strip():
            return ()
        if not all(names):
            raise ValueError
        return names

    def format(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(value)
