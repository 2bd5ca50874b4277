"""Writes the log of a partition as brokers do, and knows where each message is."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka07 import requests as kafka07
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.types import HeaderMessage, Headers, Message

TOPIC: Final = "clicks"
NOW_MS: Final = 1_700_000_000_000
CODECS: Final = {"07": ("none", "gzip", "snappy"), "0": ("none", "gzip", "snappy", "lz4"),
                 "1": ("none", "gzip", "snappy", "lz4"), "2": ("none", "gzip", "snappy", "lz4", "zstd")}  # fmt: skip
EPOCH: Final = 5


@dataclass
class Row:
    """One entry: where it is, and its messages as offset, key, value, headers."""

    file: str
    start: int
    end: int
    first: int
    last: int
    form: str
    codec: str
    messages: list[tuple[int, bytes | None, bytes | None, Headers]]


@dataclass
class WrittenLog:
    """A log in the folder of a partition."""

    folder: Path
    rows: list[Row]
    files: list[str]
    is_compacted: bool = False
    has_mark: bool = True
    extra: list[Path] = field(default_factory=list)

    @property
    def is_07(self) -> bool:
        return self.rows[0].form == "07"

    @property
    def end(self) -> int:
        return self.rows[-1].last + 1

    def of(self, file: str) -> list[Row]:
        return [row for row in self.rows if row.file == file]

    def touched(self, file: str, start: int, end: int) -> list[Row]:
        """The entries of a file that have some of these bytes."""
        return [row for row in self.of(file) if row.start < end and start < row.end]

    def base(self, file: str) -> int:
        return int(file[:20])

    def path(self, file: str) -> Path:
        return self.folder / file


def file_name(base: int, form: str = "2") -> str:
    return f"{base:020d}.{'kafka' if form == '07' else 'log'}"


def write_log(
    root: Path, draw: random.Random, forms: Sequence[str], *, files: int = 4, entries: int = 5,
    is_compacted: bool = False, start: int = 0, has_index: bool = True,
) -> WrittenLog:  # fmt: skip
    """Write a log of some segments; `forms` are those of its entries, in their order."""
    folder = root / f"{TOPIC}-0"
    folder.mkdir(parents=True)
    rows: list[Row] = []
    names: list[str] = []
    offset = start
    is_07 = forms[0] == "07"
    for number in range(files):
        form = forms[number * len(forms) // files]
        name = file_name(offset, form)
        names.append(name)
        data, index = b"", b""
        is_cleaned = is_compacted and number < files - 1  # never the segment that is written
        for _ in range(draw.randint(2, entries)):
            codec = draw.choice(CODECS[form])
            count = draw.randint(1, 6) if codec != "none" or form == "2" else 1
            if is_cleaned and draw.random() < 0.4:
                offset += draw.randint(1, 3)
            messages = [_message(draw, offset + at, form) for at in range(count)]
            last = offset + count - 1
            if is_cleaned and count > 2:
                del messages[draw.randrange(count)]  # also the last one: a batch keeps its last offset
                last = last if form == "2" else messages[-1].offset
            entry = encoded(messages, form, codec, offset, last)
            first = messages[0].offset if form in "01" else offset
            if is_07:
                first, last = offset, offset + len(entry) - 1
            rows.append(Row(name, len(data), len(data) + len(entry), first, last, form, codec, [
                (message.offset, message.key, message.value, message.headers) for message in messages
            ]))  # fmt: skip
            data += entry
            index += struct.pack(">ii", last - int(name[:20]), len(data) - len(entry))
            offset = last + 1
        (folder / name).write_bytes(data)
        if not is_07 and has_index:
            (folder / name).with_suffix(".index").write_bytes(index)
    if not is_07:
        mark = f"0\n1\n{TOPIC} 0 {offset}\n"
        (root / "replication-offset-checkpoint").write_text(mark)
        (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} 0\n")
        if is_compacted:
            (root / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {int(names[-1][:20])}\n")
    return WrittenLog(folder, rows, names, is_compacted)


def encoded(messages: Sequence[Message], form: str, codec: str, first: int, last: int) -> bytes:
    """An entry of a form."""
    if form == "07":
        return kafka07.encode_message_set([message.value or b"" for message in messages], codec)
    offsets = [message.offset for message in messages]
    if form == "2":
        return encode_record_batch(messages, codec, offsets=offsets, first_offset=first, last_offset=last,
                                   leader_epoch=EPOCH)  # fmt: skip
    return encode_message_set(messages, codec, int(form), offsets=offsets, first_offset=offsets[0])


def _message(draw: random.Random, offset: int, form: str) -> Message:
    size = draw.choice((0, 3, 40, 200, 900))
    value = b"%d " % offset + (draw.randbytes(size) if draw.random() < 0.5 else b"text " * (size // 5))
    if form == "07":
        return Message(TOPIC, "0-0", offset, offset + 1, None, value)
    key = draw.choice((None, b"", b"key %d" % offset))
    time_ms = None if form == "0" else NOW_MS + offset
    if form == "2" and draw.random() < 0.3:
        return HeaderMessage(TOPIC, 0, offset, offset + 1, key, value, time_ms, (("a", b"1"), ("a", None)))
    return Message(TOPIC, 0, offset, offset + 1, key, None if key and draw.random() < 0.1 else value, time_ms)


def all_messages(rows: Sequence[Row]) -> Iterator[tuple[int, bytes | None, bytes | None, Headers]]:
    for row in rows:
        yield from row.messages
