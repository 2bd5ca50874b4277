"""The checksum of record batches, by whichever package computes it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer import codecs, kernel


@given(st.binary(max_size=300), st.sampled_from([bytes, bytearray, memoryview]))
def test_both_packages_compute_the_same_of_any_buffer(data: bytes, kind: type) -> None:
    assert codecs.crc32c(kind(data)) == codecs._by_crcmod()(kind(data))


def test_it_is_castagnoli() -> None:
    assert codecs.crc32c(b"123456789") == 0xE3069283


def test_crcmod_serves_where_there_is_no_faster_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "compiled", None)
    monkeypatch.setitem(sys.modules, "crc32c", None)
    assert codecs._fastest()(b"123456789") == 0xE3069283
