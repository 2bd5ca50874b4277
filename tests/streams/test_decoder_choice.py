"""Which decoders an application has given, and for what."""

from __future__ import annotations

import pytest

from zkconsumer.streams.stream import DecoderChoice


def first(data: bytes) -> str:
    return data.decode()


def second(data: bytes) -> int:
    return len(data)


def test_a_decoder_by_position_is_for_keys_and_in_kafka_07_for_values() -> None:
    choice = DecoderChoice.of(first, None, None)
    assert (choice.key_decoder, choice.value_decoder) == (first, None)
    assert (choice.for_07().key_decoder, choice.for_07().value_decoder) == (None, first)


def test_a_decoder_of_values_is_one_everywhere() -> None:
    choice = DecoderChoice.of(None, None, second)
    assert choice.for_07() == choice == DecoderChoice(None, second)
    assert DecoderChoice.of(None, None, None).for_07() == DecoderChoice(None, None)


@pytest.mark.parametrize("given", [(None, first, None), (first, None, second), (None, first, second)])
def test_kafka_07_has_no_keys_to_decode(given: tuple[object, object, object]) -> None:
    with pytest.raises(TypeError, match="which has no keys; give only a decoder of values"):
        DecoderChoice.of(*given).for_07()  # type: ignore[arg-type]


def test_a_decoder_of_keys_is_given_once() -> None:
    with pytest.raises(TypeError, match="two decoders of keys are given"):
        DecoderChoice.of(first, first, None)
