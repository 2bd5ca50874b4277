"""Checks that partitions can exist before a broker is asked for them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["check_numbers"]

_MAX_PARTITION: Final = 0x7FFFFFFF


def check_numbers(partitions: Iterable[tuple[str, int | str]]) -> None:
    """Raise for partitions that no broker can have; Kafka 0.7 names them by texts, which are not checked.

    Raises:
        ValueError: A number below 0 or above 2^31-1.
    """
    for topic, number in partitions:
        if isinstance(number, int) and not 0 <= number <= _MAX_PARTITION:
            raise ValueError(f"{topic}/{number}: there is no such partition; their numbers are 0 to {_MAX_PARTITION}")
