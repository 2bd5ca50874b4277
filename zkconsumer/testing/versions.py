"""What the versions of Kafka can do, and the refusal of what one cannot."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.testing.errors import NotSupported

CODECS: Mapping[str, tuple[int, ...]] = {"none": (0, 7), "gzip": (0, 7), "snappy": (0, 7), "lz4": (0, 8, 2)}
"""Codec -> the first version of Kafka that knows it, of those whose brokers the kit writes to."""

FIRST_WITHOUT_OLD_REQUESTS = (4, 0)
"""The first version of Kafka whose brokers take no messages in the formats before record batches (KIP-896)."""
FIRST_WITH_KEYS = (0, 8)
FIRST_WITH_TOMBSTONES = (0, 8, 1)


def version_tuple(version: str) -> tuple[int, ...]:
    """`"0.8.2.2"` -> `(0, 8, 2, 2)`."""
    return tuple(int(part) for part in version.split("."))


def require(version: str, minimum: tuple[int, ...], what: str) -> None:
    """Return if this version is not older than `minimum`.

    Args:
        what: what needs that version; starts the sentence of the error.

    Raises:
        NotSupported: it is older.
    """
    if version_tuple(version) < minimum:
        raise refused(version, minimum, what)


def refused(version: str, minimum: tuple[int, ...], what: str) -> NotSupported:
    """Return the error of `require`."""
    return NotSupported(f"{what} needs Kafka {'.'.join(map(str, minimum))} or newer, this is {version}")


def check_codec(version: str, codec: str) -> None:
    """Return if brokers of this version know the codec.

    Raises:
        NotSupported: they do not.
        ValueError: there is no such codec.
    """
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r}: known are {', '.join(CODECS)}")
    require(version, CODECS[codec], f"codec {codec}")
