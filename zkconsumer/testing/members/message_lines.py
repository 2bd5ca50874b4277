"""How the programs of members write delivered messages: value and key in Base64."""

from __future__ import annotations

import base64

from zkconsumer import Message
from zkconsumer.testing.history.events import partition_of

MESSAGE = "message"
"""The word of such a line among those of `program.py`."""


def encoded(data: bytes | None) -> str:
    """A value or key as a field of a member's output: Base64, `-` for none."""
    return "-" if data is None else base64.b64encode(data).decode()


def decoded(field: str) -> bytes | None:
    """The value or key in such a field."""
    return None if field == "-" else base64.b64decode(field)


def format_message(message: Message, stream: int) -> str:
    """A delivered message as fields; value and key in Base64, `-` for none."""
    fields = (message.topic, message.partition, message.offset, stream, encoded(message.value), encoded(message.key))
    return " ".join(map(str, fields))


def parse_message(text: str) -> tuple[str, int | str, int, int, bytes | None, bytes | None]:
    """Topic, partition, offset, stream, value and key of what `format_message` wrote."""
    topic, partition, offset, stream, value, key = text.split(" ")
    return topic, partition_of(partition), int(offset), int(stream), decoded(value), decoded(key)
