"""Decides whether the offset of an entry can be right, and which offset stands for one that cannot.

No checksum covers the offset of an entry of magic 0 or 1: only its neighbours show a flipped bit there. In a log the
offsets ascend, with holes where it was compacted, and all that a consumer may see are below the high watermark. So an
offset is *damaged* if it is

    negative, or not above the offset of the entry before
    not below the high watermark, if it does not follow directly on the entry before; in a wrapper of magic 1, above
        the offset of the wrapper
    above the offsets of later entries that fit the ones before it: of one such entry if there is a hole before it that
        its own messages do not explain, else of two; this holds for the first entry of a set, too, if its offset is the
        very one that was asked for

An entry whose offset is damaged gets the first offset that its neighbours leave free; the following ones keep theirs.

Keeps the bounds of the offsets in a message set of magic 0 or 1 while it is read.

Finds where a message set of Kafka 0.8 ends, and the offset after its last entry, without reading any message.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from simpleconsumer import primitives
from simpleconsumer.primitives import EntryLayout, Walk, plain
from simpleconsumer.types import MAX_INT64, Buffer

__all__ = [
    "CODEC_MASK", "ENTRY_OVERHEAD", "LAYOUT", "NO_TIMESTAMP", "PLAIN", "SMALLEST_MESSAGE", "Level", "Walk",
    "begins_again", "begins_below", "end_in_order", "is_sole_trusted", "most_in", "offset_behind",
    "place_of_damaged", "plain", "shallow_end", "trusted_end", "walk_entries", "why_damaged",
]  # fmt: skip

ENTRY_OVERHEAD: Final = 12
CODEC_MASK: Final = 7
NO_TIMESTAMP: Final = -1


class Level:
    """A message set that is being read: that of a broker, or the inside of a wrapper.

    Attributes:
        position: Where the next entry starts.
        magic: Magic that the messages must have: that of the wrapper; None outside of wrappers.
        base: The number to add to the offsets found here (magic 1 wrappers hold relative ones).
        timestamp_ms: Timestamp of all messages here (wrapper with LogAppendTime), or None.
        wrapper_offset: Offset of the wrapper; -1 outside of wrappers.
        budget_bytes: How many bytes wrappers in here may still decompress to.
        floor: Least offset that the next entry can have: after that of the entry before. Like `limit` and `asked` it
            is relative to `base`, as the offsets of the entries here are.
        limit: Offsets here are below it, except one that follows directly on that of the entry before: that the two
            agree is better evidence than a high watermark, which may be late. In a wrapper of magic 1 all are below it.
        asked: The offset that was asked for; the place of the first entry if its own offset is damaged.
        damaged: The last entries of damaged offset: the floor at that time, and their number.
    """

    __slots__ = (
        "asked",
        "base",
        "budget_bytes",
        "buffer",
        "damaged",
        "floor",
        "limit",
        "magic",
        "position",
        "timestamp_ms",
        "wrapper_offset",
    )

    def __init__(self, buffer: Buffer, budget_bytes: int = 0) -> None:
        self.buffer = buffer
        self.position = 0
        self.magic: int | None = None
        self.base = 0
        self.timestamp_ms: int | None = None
        self.wrapper_offset = -1
        self.budget_bytes = budget_bytes
        self.floor = 0
        self.limit = MAX_INT64
        self.asked = 0
        self.damaged = (-1, 0)


SMALLEST_MESSAGE: Final = 14
"""Size of a magic 0 message with neither key nor value."""
LAYOUT: Final = EntryLayout(8, ENTRY_OVERHEAD, SMALLEST_MESSAGE)
_OFFSET = Struct(">q")


def shallow_end(buffer: Buffer) -> tuple[int, int | None, int]:
    """Return how many bytes whole entries take, the offset after the last one, and the number of entries.

    Nothing is decompressed and no CRC is checked. `(0, None, 0)` for a buffer that is not empty means that no entry is
    whole: the fetch size was too small for the message.

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    view = plain(buffer)
    walk = walk_entries(view)
    return (walk.end, _OFFSET.unpack_from(view, walk.last)[0] + 1, walk.entries) if walk.entries else (0, None, 0)


def walk_entries(view: Buffer) -> Walk:
    """Return the whole entries of a set; `view` holds bytes (`plain`).

    Raises:
        BrokenFraming: A size field is negative or below 14.
    """
    return primitives.walk_entries(view, LAYOUT)


PLAIN: Final = 0
"""How many offsets before its own an uncompressed message covers."""
_LOOKED_AT: Final = 64
"""How many entries after a doubtful one are examined."""
_MOST_A_BYTE: Final = 64
"""Most messages for each byte of a wrapper: an offset that implies more is not believed."""
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 17
_ENTRY = Struct(">qi").unpack_from


def most_in(buffer: Buffer, position: int, size: int) -> int:
    """Return how many offsets before its own an entry may cover: none if uncompressed, many if it is a wrapper."""
    return size * _MOST_A_BYTE if buffer[position + _ATTRIBUTES_AT] & CODEC_MASK else PLAIN


def why_damaged(level: Level, offset: int, end: int, most: int) -> str | None:
    """Return what is wrong with the offset of the next entry of a level, as a clause; None if it can be right.

    Args:
        offset: As found, not yet absolute.
        end: Where the entry ends.
        most: See `most_in`.
    """
    base, floor = level.base, level.floor
    if offset + base < 0:
        return f"offset {offset + base} is negative"
    if offset < floor:
        return f"offset {offset + base} is not above {floor + base - 1}, the offset of the entry before"
    if offset >= level.limit and (offset != floor or level.magic == 1):
        if level.magic == 1:  # no other level has a base
            return f"offset {offset + base} is above {level.wrapper_offset}, the offset of its wrapper"
        return f"offset {offset} is not below {level.limit}, where the log ends"
    hole = offset - max(floor, level.asked)
    if hole <= 0 and (floor or offset != level.asked or level.magic is not None):
        return None
    after = offset_behind(level, end, offset, 1 if hole > most else 2)
    if after is None:
        return None
    return f"offset {offset + base} is not below {after + base}, the offset of a later entry"


def place_of_damaged(level: Level, end: int) -> int:
    """Return the absolute offset to report for the next entry, whose offset is damaged, and take note of it.

    It is below every later sound offset, so continuing after it skips no message.
    """
    floor, count = level.floor, 0
    if level.damaged[0] == floor:
        count = level.damaged[1]
    level.damaged = (floor, count + 1)
    place = max(floor, level.asked) + count
    after = offset_behind(level, end)
    return level.base + (place if after is None else min(place, after - 1))


def offset_behind(level: Level, position: int, most: int | None = None, needed: int = 1) -> int | None:
    """Return the first offset of a whole entry after a position that fits the ones before it; None if none is near.

    One below the offset that was asked for counts only if a higher one follows: a single one is itself damaged.

    Args:
        most: Return None as well unless the first `needed` ones, ascending, are not above that.
    """
    buffer, floor, limit = level.buffer, level.floor, level.limit
    first: int | None = None
    try:
        for _ in range(_LOOKED_AT):
            offset, size = _ENTRY(buffer, position)
            position += ENTRY_OVERHEAD + size
            if size < SMALLEST_MESSAGE or position > len(buffer):  # no entry, or a cut off one
                return None
            if not floor <= offset < limit:
                continue
            if most is not None and offset > most:
                return None
            if first is None:
                first = offset
                if first < level.asked:
                    needed = 2
            needed -= 1
            if not needed:
                return first
            floor = offset + 1
    except error:  # the set ends
        pass
    return None


def begins_below(message_set: Buffer, asked: int) -> bool:
    """Return whether a set starts below the offset asked for, with a hole there: then the first offset is damaged.

    A broker sends an entry from below only if its log holds entries of damaged offset; then it also sends those up to
    the offset asked for. For a wrapper of magic 0 the offsets inside are better evidence than its own.
    """
    offset, size = _ENTRY(message_set)
    if not 0 <= offset < asked or (message_set[_MAGIC_AT] == 0 and most_in(message_set, 0, size)):
        return False
    level = Level(message_set)
    level.floor = offset + 1
    end = ENTRY_OVERHEAD + size
    after = offset_behind(level, end)
    return end == len(message_set) if after is None else after > asked


def end_in_order(message_set: Buffer, walk: Walk, high_watermark: int) -> int | None:
    """Return the offset after a set whose last entries are consecutive, as in nearly all sets; else None.

    Args:
        high_watermark: Of the same answer; negative when the broker did not say.
    """
    first, _ = _ENTRY(message_set, walk.tail)
    last, _ = _ENTRY(message_set, walk.last)
    limit = MAX_INT64 if high_watermark < 0 else high_watermark
    return int(last) + 1 if 0 <= first == last - walk.tail_entries + 1 and last < limit else None


def trusted_end(
    message_set: Buffer, first: int, tail: int, end: int, asked: int, high_watermark: int, *, is_cut: bool = False
) -> tuple[int, int]:
    """Return up to which byte entries of a fetched set may be used, and the offset after them.

    A last entry after a hole may be a wrapper, or one of a compacted log; or its offset is damaged, and would skip
    messages that nobody has read. It is left out unless the log ends with it, or the next entry, cut off or not,
    has a higher offset: when it is fetched again it is the first one, and the following entries show which it is. Two
    entries that contradict each other are left out, too, and so are entries without a free offset below the high
    watermark.

    Args:
        first: Where the first entry starts.
        tail: Where one of the last entries starts, from which on entries are examined; or the first one.
        end: Where the whole entries end.
        asked: The offset that was asked for.
        high_watermark: Of the same answer; negative when the broker did not say.
        is_cut: As for `is_sole_trusted`: then the log does not end with the set, whatever the last offset is.
    """
    level = Level(message_set)
    level.position, level.asked = tail, asked
    if high_watermark >= 0:
        level.limit = high_watermark
    sound_end = usable_end = tail
    after = asked
    doubt: tuple[int, int] | None = None  # where a sound entry after a hole starts, if it is the one before
    while level.position < end:
        position = level.position
        offset, size = _ENTRY(message_set, position)
        level.position = position + ENTRY_OVERHEAD + size
        if offset == level.floor and offset < level.limit:  # as nearly all do
            level.floor = after = offset + 1
            sound_end = usable_end = level.position
            doubt = None
            continue
        is_last = level.position >= end
        most = most_in(message_set, position, size)
        if why_damaged(level, offset, level.position, most) is not None:
            if is_last and doubt is not None and 0 <= offset < level.floor:  # one of the two is damaged
                sound_end, after = doubt
                usable_end = sound_end
                break
            doubt = None
            place = place_of_damaged(level, level.position)
            if place >= level.limit:
                break
            after = max(after, place + 1)
        else:
            if offset >= level.limit:  # not to be seen yet
                break
            if is_last and sound_end > tail and _is_doubtful(level, offset, most, is_cut):
                return sound_end, level.floor
            doubt = (sound_end, level.floor) if sound_end > tail else None
            level.floor = after = offset + 1
            sound_end = level.position
        usable_end = level.position
    if sound_end == tail > first:
        return trusted_end(message_set, first, first, end, asked, high_watermark, is_cut=is_cut)
    return usable_end, after


def begins_again(message_set: Buffer) -> bool:
    """Return whether the offset of the second entry, perhaps cut off, is not above that of the first one.

    One of the two is damaged; the following entries show which. If it is the first one, it may be a much older entry,
    which the broker found because its offset is too high.
    """
    offset, size = _ENTRY(message_set)
    end = ENTRY_OVERHEAD + size
    return bool(end + ENTRY_OVERHEAD <= len(message_set) and 0 <= _ENTRY(message_set, end)[0] <= offset)


def is_sole_trusted(message_set: Buffer, end: int, asked: int, high_watermark: int, *, is_cut: bool) -> bool:
    """Return whether the only whole entry of a set can be used without examining the next entry.

    It cannot if it is after the offset asked for: its own offset may be damaged, or it is an older one, which the
    broker found because its offset is too high. A cut off entry of a higher offset is proof enough. A wrapper at the
    end of a segment is believed as far as its messages can explain the hole.

    Args:
        end: Where the entry ends.
        asked, high_watermark: As for `trusted_end`.
        is_cut: Whether the broker sent as much as was asked for, so that more may follow in the log.
    """
    offset, size = _ENTRY(message_set)
    if offset <= asked:
        return True
    if offset >= high_watermark - 1:
        return not is_cut
    if len(message_set) >= end + ENTRY_OVERHEAD:
        return bool(_ENTRY(message_set, end)[0] > offset)
    return not is_cut and offset - most_in(message_set, 0, size) <= asked


def _is_doubtful(level: Level, offset: int, most: int, is_cut: bool) -> bool:
    """Return whether a last entry is after a hole, without evidence that the hole is right."""
    hole = offset - level.floor
    if level.damaged[0] == level.floor:
        hole -= level.damaged[1]
    if not is_cut:
        return hole > most and offset + 1 != level.limit
    if hole <= 0:
        return False
    if len(level.buffer) < level.position + ENTRY_OVERHEAD:
        return True
    return bool(_ENTRY(level.buffer, level.position)[0] <= offset)
