"""Sums over the rows of a partition of Kafka 0.7 that show whether each message is there once. Pure.

How many messages lie between two byte positions is not known beforehand. But each entry ends where the next one starts,
and the rows have both places. So the entries of a span are there once, all of them, if and only if their starts and
their ends are the same positions, but for the start and the end of the span: then they form one chain from one to the
other. Sums of checksums of the positions show that without comparing them one by one. The last message of a compressed
entry says how many there are.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

__all__ = ["LIGHT_MASK", "EntrySums", "checksum", "light"]

LIGHT_MASK: Final = 0xFFFF


class EntrySums(NamedTuple):
    """Sums over the rows of one partition, and over those rows that are the last ones of their entries.

    Attributes:
        covered: bytes of all entries.
        starts, ends: of the checksums of the entries' starts and ends.
        expected: how many messages the entries have, as their last messages say.
        weighed, expected_weight: of the checksums of the starts, once for each row; and as it should be.
        indexes, expected_indexes: of the numbers within entries, each times `light` of its entry's start, None if they
            are too large; and as it should be. Without that factor, rows that are missing and others that are there
            twice cancel each other out more often.
        squares, expected_squares: of their squares, None if they are too large; and as it should be.
    """

    covered: int
    starts: int
    ends: int
    expected: int
    weighed: int
    expected_weight: int
    indexes: int | None
    expected_indexes: int | None
    squares: int | None
    expected_squares: int | None

    def fault(self, start: int, end: int, rows: int) -> str:
        """Return what is wrong with the rows of a span that is not empty, a clause; empty if nothing is.

        Args:
            start, end: The span that should be there.
            rows: How many there are.
        """
        if self.covered != end - start:
            return (f"entries of {self.covered} bytes were written, positions {start} to {end} have {end - start} "
                    "(entries without any message are loaded with `--gaps allow`)")
        if self.ends - self.starts != checksum(end) - checksum(start):
            return f"the entries from position {start} to {end} were not written exactly once each"
        is_whole = (self.weighed, self.indexes, self.squares) == (
            self.expected_weight, self.expected_indexes, self.expected_squares
        )  # fmt: skip
        if rows != self.expected or not is_whole:
            return f"{rows} messages were written, but not exactly the {self.expected} of their entries"
        return ""


def light(crc: int) -> int:
    """Return the part of a checksum by which numbers are multiplied: products of more bits would be too large."""
    return crc & LIGHT_MASK


def checksum(position: int) -> int:
    """Return the checksum of a position: that of Spark's `crc32(cast(position as string))`.

    >>> checksum(42)
    841265288
    """
    return zlib.crc32(b"%d" % position)
