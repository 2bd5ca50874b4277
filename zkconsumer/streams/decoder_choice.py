"""Which decoders an application has given, and for what: Kafka 0.7 has no keys, and one decoder there is for values."""

from __future__ import annotations

import inspect
from typing import NamedTuple, Self

from zkconsumer.streams.cursor import Decoder

__all__ = ["DecoderChoice"]


class DecoderChoice(NamedTuple):
    """The decoders of a consumer.

    Attributes:
        key_decoder: For keys.
        value_decoder: For values.
        is_by_position: The first one was given by its position, and may be meant for values.
    """

    key_decoder: Decoder | None
    value_decoder: Decoder | None
    is_by_position: bool = False

    @classmethod
    def of(cls, decoder: Decoder | None, key_decoder: Decoder | None, value_decoder: Decoder | None) -> Self:
        """Return the choice that these arguments of `create_message_streams` mean.

        Raises:
            TypeError: A decoder of keys that is given twice; one that is not callable, or is a coroutine function.
        """
        if decoder is not None and key_decoder is not None:
            raise TypeError("two decoders of keys are given: a positional one and key_decoder")
        _check("value_decoder", value_decoder)
        if decoder is not None:
            _check("decoder", decoder)
            return cls(decoder, value_decoder, True)
        _check("key_decoder", key_decoder)
        return cls(key_decoder, value_decoder)

    def for_07(self) -> Self:
        """Return the choice for a cluster of Kafka 0.7.

        Raises:
            TypeError: There is one for keys.
        """
        if self.key_decoder is None:
            return self
        if self.is_by_position and self.value_decoder is None:
            return self._replace(key_decoder=None, value_decoder=self.key_decoder)
        raise TypeError("a decoder of keys is given, but this cluster is of Kafka 0.7, which has no keys; give only "
                        "a decoder of values")


def _check(name: str, decoder: object) -> None:
    """Refuse decoders whose results would be coroutines: nothing awaits them, and the messages would count as done."""
    if decoder is None:
        return
    if not callable(decoder):
        raise TypeError(f"{name} is {decoder!r}; it must be callable with the bytes")
    if inspect.iscoroutinefunction(decoder) or inspect.iscoroutinefunction(type(decoder).__call__):
        raise TypeError(f"{name} is a coroutine function; make it `def`, because nothing awaits it, not even "
                        "zkconsumer.aio")
