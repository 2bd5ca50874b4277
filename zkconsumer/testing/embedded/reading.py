"""Reads requests front to back, in both encodings of Kafka's messages. Pure.

Written beside the decoders of `simpleconsumer`, so that the consumer is not tested by its own reader.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TypeVar

T = TypeVar("T")
TopicPartition = tuple[str, int]

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_MOST_VARINT_BYTES = 5


class BadRequest(Exception):  # noqa: N818 - not a failure of the broker
    """A request that cannot be read, or that is not served: the Java broker closes the connection."""


class Reader:
    """Reads a request front to back; what does not fit is a struct.error or a BadRequest.

    Attributes:
        is_flexible: whether lengths are compact, and structs end with tagged fields.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        self.is_flexible = False
        self._view = memoryview(data)
        self._at = 0

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._at

    @position.setter
    def position(self, position: int) -> None:
        self._at = position

    def _take(self, layout: Struct) -> int:
        value: int = layout.unpack_from(self._view, self._at)[0]
        self._at += layout.size
        return value

    def int8(self) -> int:
        return self._take(_INT8)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def int64(self) -> int:
        return self._take(_INT64)

    def raw(self, length: int) -> memoryview:
        """So many bytes."""
        end = self._at + length
        if length < 0 or end > len(self._view):
            raise BadRequest(f"{length} bytes at byte {self._at} of {len(self._view)}")
        part = self._view[self._at : end]
        self._at = end
        return part

    def uvarint(self) -> int:
        value = 0
        for index in range(_MOST_VARINT_BYTES):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise BadRequest(f"a varint before byte {self._at} has more than {_MOST_VARINT_BYTES} bytes")

    def nullable_string(self) -> str | None:
        length = self.uvarint() - 1 if self.is_flexible else self.int16()
        return str(self.raw(length), "utf-8", "replace") if length >= 0 else None

    def string(self) -> str:
        """A string, empty for null."""
        return self.nullable_string() or ""

    def sized(self) -> memoryview:
        return self.raw(self.uvarint() - 1 if self.is_flexible else self.int32())

    def nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        count = self.uvarint() - 1 if self.is_flexible else self.int32()
        return [read() for _ in range(count)] if count >= 0 else None

    def end(self) -> None:
        """Pass over the tagged fields at the end of a struct, in the flexible encoding."""
        for _ in range(self.uvarint() if self.is_flexible else 0):
            self.uvarint()
            self.raw(self.uvarint())

    def partitions(self, read: Callable[[], T]) -> dict[TopicPartition, T]:
        """`[topic [int32 partition, what read reads]]`; of a partition that comes twice the last."""
        found: dict[TopicPartition, T] = {}

        def of_topic() -> None:
            topic = self.string()

            def of_partition() -> None:
                partition = self.int32()
                found[topic, partition] = read()
                self.end()

            self.nullable_array(of_partition)
            self.end()

        self.nullable_array(of_topic)
        return found
