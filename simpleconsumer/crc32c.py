"""CRC-32C (Castagnoli), the checksum of record batches: by the kernel, else by `crc32c`, else by `crcmod`. Pure.

`crcmod` computes the same, forty times as slowly, and it has no wheels: without a compiler it is slower still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simpleconsumer import kernel
from simpleconsumer.types import Buffer

__all__ = ["crc32c"]


def _by_crcmod() -> Callable[[Buffer], int]:
    import crcmod.predefined

    checksum: Callable[[Buffer], int] = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
    return checksum


def _fastest() -> Callable[[Buffer], int]:
    if kernel.compiled is not None:
        compiled: Callable[[Buffer], int] = kernel.compiled.crc32c
        return compiled
    try:
        from crc32c import crc32c as by_instruction
    except ImportError:
        return _by_crcmod()
    checksum: Callable[[Buffer], int] = by_instruction
    return checksum


crc32c: Final = _fastest()
"""Returns the checksum of a buffer."""
