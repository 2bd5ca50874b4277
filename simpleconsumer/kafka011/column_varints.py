"""Reads varints at many places of a stretch at once.

Nearly all varints of a record take one byte or two, and to look at one place of each record takes longer than some
computing. So `Heads` gathers 16 bytes of each record at once, and reads one varint behind the other from these.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simpleconsumer.column_arrays import Ints

__all__ = ["Heads", "Uniform", "Varints", "uniform_heads"]

Words = NDArray[np.uint64]

_WORD: Final = 8
_GATHERED: Final = 16
_NULL: Final = 1
"""The byte of a length that stands for null."""


class Varints:
    """Reads varints at any places of a stretch, behind which is padding (`column_areas.PADDING`)."""

    def __init__(self, stretch: NDArray[np.uint8]) -> None:
        self._are_good = True
        self._stretch = stretch
        self._words: Words = np.ndarray((len(stretch) - 7,), "<u8", stretch, 0, (1,))

    def are_good(self) -> bool:
        """Return whether none so far was longer than it may be, or than 8 bytes."""
        return self._are_good

    def read(self, at: Ints, most_bytes: int = 5) -> tuple[Ints, Ints]:
        """Return the numbers at some places, and the places behind them.

        Args:
            at: The places.
            most_bytes: How long they may be: 5 for those of 32 bits, and 8 for those of 64, longer ones of which are
                not read here.
        """
        low = self._stretch[at]
        if int(low.max()) < 0x80:
            return _signed(low.astype(np.int64)), at + 1
        high = self._stretch[at + 1]
        is_long = low >= 0x80
        if not (is_long & (high >= 0x80)).any():
            number = (low & 0x7F).astype(np.int64)
            number += (high * is_long).astype(np.int64) << 7
            return _signed(number), at + 1 + is_long
        word = self._words[at]
        ends = ~word & np.uint64(0x8080808080808080 >> 8 * (8 - most_bytes))
        if not ends.all():
            self._are_good = False
            return np.zeros(len(at), np.int64), at
        end = ends & (~ends + np.uint64(1))
        word &= end - np.uint64(1)
        longest = int(end.max())
        length = np.ones(len(at), np.int64)
        for byte in range(1, 8):
            limit = 0x80 << 8 * byte
            if longest < limit:
                break
            length += end >= np.uint64(limit)
        bits = word & np.uint64(0x7F)
        for byte in range(1, int(length.max())):
            bits |= (word >> np.uint64(byte)) & np.uint64(0x7F << 7 * byte)
        return _signed(bits.view(np.int64)), at + length


class Heads:
    """Reads varints that stand one behind the other, of many records at once."""

    def __init__(self, varints: Varints, stretch: NDArray[np.uint8], at: Ints) -> None:
        self._varints = varints
        self._stretch = stretch
        self.move(at)

    @property
    def at(self) -> Ints:
        """The places that come next."""
        return self._start + self._passed if self._most_passed else self._start

    def move(self, at: Ints) -> None:
        """Go on at other places, which are within the stretch."""
        room = len(self._stretch) - _GATHERED + 1
        anywhere: NDArray[Any] = np.ndarray((room,), f"V{_GATHERED}", self._stretch, 0, (1,))
        words = anywhere[at].view("<u8").reshape(len(at), 2)
        self._start = at
        self._word, self._first, self._second = words[:, 0], words[:, 0], words[:, 1]
        self._passed: Any = 0  # bytes since the words were gathered: of all records alike, or of each one
        self._most_passed = self._used = 0  # most bytes of any record: since then, and of the word

    def gathered(self) -> Words:
        """Return the first 8 bytes of what was gathered last, of each record."""
        return self._first

    def skip_byte(self) -> None:
        """Pass by a byte of each record."""
        if self._used >= _WORD:
            self._refill()
        self._pass(1, 1, _EIGHT)

    def read(self, most_bytes: int = 5) -> Ints:
        """Return the numbers that come next, and pass by them; `most_bytes` is as in `Varints.read`."""
        if self._used > _WORD - 2:
            self._refill()
        word = self._word
        is_long = word & _HIGH
        if not is_long.any():
            number = word & _SEVEN_BITS
            self._pass(1, 1, _EIGHT)
        elif (is_long & (word >> _EIGHT)).any():
            longer, behind = self._varints.read(self.at, most_bytes)
            self.move(behind)
            return longer
        elif is_long.all():
            number = (word & _SEVEN_BITS) | ((word >> _ONE) & _SECOND_BITS)
            self._pass(2, 2, _SIXTEEN)
        else:
            is_long >>= _SEVEN
            number = (word & _SEVEN_BITS) | ((word >> _ONE) & _SECOND_BITS) * is_long
            self._pass(2, is_long.view(np.int64) + 1, _EIGHT + (is_long << _THREE))
        return _signed(number.view(np.int64))

    def _pass(self, most: int, width: Any, bits: Any) -> None:
        self._passed = self._passed + width
        self._word = self._word >> bits
        self._used += most
        self._most_passed += most

    def _refill(self) -> None:
        """Have at least 2 bytes of each record in the word again."""
        if self._most_passed > _GATHERED - 2:
            self.move(self.at)
            return
        bits = (np.asarray(self._passed, np.int64) << 3).view(np.uint64)
        # A shift by 64 and more gives 0.
        self._word = (self._first >> bits) | (self._second << (_SIXTY_FOUR - bits))
        if self._most_passed > _WORD:
            self._word |= self._second >> (bits - _SIXTY_FOUR)
        self._used = max(0, self._most_passed - _WORD)


class Uniform(NamedTuple):
    """Heads of records without a key, all of whose varints take as many bytes as those of the first record.

    Attributes:
        length_bytes: Bytes of the length of each record.
        key_at: Where the length of the key ends, behind the start of each record.
        value_at: Where the value starts.
        length, stamp, delta, value_length: The numbers, of which `stamp` alone may be negative.
    """

    length_bytes: int
    key_at: int
    value_at: int
    length: Ints
    stamp: Ints
    delta: Ints
    value_length: Ints


def uniform_heads(words: Words) -> Uniform | None:
    """Return the heads of records from their first 8 bytes; None unless they are `Uniform`, and end within these."""
    first = int(words[0])
    at, places = 0, []
    for is_attributes in (False, True, False, False, False, False):
        width = 1 if is_attributes or not first >> 8 * at & 0x80 else 2
        places.append((8 * at, width))
        at += width
    (length, _, stamp, delta, key, value), end = places, at
    if end > _WORD or key[1] != 1:
        return None
    mask, expected = 0xFF << key[0], _NULL << key[0]
    for bit, width in (length, stamp, delta, value):
        mask |= (0x80 if width == 1 else 0x8080) << bit
        expected |= (0 if width == 1 else 0x80) << bit
    for bit, _ in (length, delta, value):
        mask |= 1 << bit  # of a negative number
    if ((words ^ np.uint64(expected)) & np.uint64(mask)).any():
        return None
    behind_key = key[0] // 8 + 1
    lengths = (_positive(words, *length), _positive(words, *delta), _positive(words, *value))
    return Uniform(length[1], behind_key, end, lengths[0], _any_sign(words, *stamp), lengths[1], lengths[2])


def _positive(words: Words, bit: int, width: int) -> Ints:
    """Return the numbers at a bit of some words, which are not negative."""
    number = words >> np.uint64(bit + 1) & np.uint64(0x3F)
    if width == 2:
        number |= words >> np.uint64(bit + 2) & np.uint64(0x1FC0)
    return number.view(np.int64)


def _any_sign(words: Words, bit: int, width: int) -> Ints:
    """Return the numbers at a bit of some words."""
    number = words >> np.uint64(bit) & _SEVEN_BITS
    if width == 2:
        number |= words >> np.uint64(bit + 1) & _SECOND_BITS
    return _signed(number.view(np.int64))


def _signed(number: Ints) -> Ints:
    """Return numbers without their zigzag."""
    return (number >> 1) ^ -(number & 1)


_ONE, _THREE, _SEVEN, _EIGHT, _SIXTEEN, _SIXTY_FOUR = (np.uint64(bits) for bits in (1, 3, 7, 8, 16, 64))
_HIGH, _SEVEN_BITS, _SECOND_BITS = (np.uint64(mask) for mask in (0x80, 0x7F, 0x3F80))
