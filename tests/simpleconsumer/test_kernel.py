"""The compiled kernel next to plain Python: the same messages, errors and positions, from sound and damaged bytes."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import golden_batches
import golden_frames
import pytest
from drawn_sets import FORMATS, damaged, drawn_set, with_epochs

from simpleconsumer import KAFKA011, KAFKA07, KAFKA08, codecs, column_rows, kernel
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.kafka011 import columns, record_batch
from simpleconsumer.kafka07 import columns as columns_07
from simpleconsumer.kafka07 import message_set as set_07
from simpleconsumer.kafka08 import columns as columns_08
from simpleconsumer.kafka08 import message_set as set_08
from simpleconsumer.types import AbortedTransaction, Message
from zkconsumer.polling.records import ConsumerRecord, TimestampType
from zkconsumer.polling.taken_items import TakenRecords

needs_kernel = pytest.mark.skipif(
    kernel.compiled is None, reason=f"needs the compiled kernel, here is {kernel.description}"
)

DECODERS = {"0.7": set_07.decode_messages, "magic 0": set_08.decode_messages, "magic 1": set_08.decode_messages}


def decoded(kind: str, data: bytes, start: int, **how: Any) -> tuple[list[Message], list[tuple[Any, ...]]]:
    """Return the messages of a set, and its errors, behind which decoding goes on."""
    decode = DECODERS.get(kind, record_batch.decode_messages)
    messages: list[Message] = []
    errors: list[tuple[Any, ...]] = []
    resume = None
    while True:
        try:
            for message in decode(data, "t", 0, start, resume=resume, **how):
                messages.append(message)  # noqa: PERF402 - what came before an error counts
            return messages, errors
        except MessageError as error:
            errors.append((type(error), len(messages), error.offset, error.next_offset, error.index, error.reason))
            resume = error.resume
        except BrokenFraming as error:
            return messages, [*errors, (type(error), len(messages), str(error))]


def compared(monkeypatch: pytest.MonkeyPatch, kind: str, data: bytes, start: int, **how: Any) -> int:
    """Decode a set by both paths, compare what they give, and return how many messages that is."""
    found = decoded(kind, data, start, **how)
    with monkeypatch.context() as plain:
        plain.setattr(kernel, "compiled", None)
        expected = decoded(kind, data, start, **how)
    assert found == expected
    assert [type(message) for message in found[0]] == [type(message) for message in expected[0]]
    return len(found[0])


COLUMNS = {"0.7": columns_07.decode_columns, "magic 0": columns_08.decode_columns, "magic 1": columns_08.decode_columns}


def columns_of(kind: str, data: bytes, start: int, **how: Any) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Return the record batches of a set, and its errors, behind which decoding goes on."""
    decode = COLUMNS.get(kind, columns.decode_columns)
    batches: list[Any] = []
    errors: list[tuple[Any, ...]] = []
    resume = None
    while True:
        try:
            for batch in decode(data, "t", 0, start, resume=resume, **how):
                batch.validate(full=True)
                batches.append(batch)
            return batches, errors
        except MessageError as error:
            errors.append((type(error), len(batches), error.offset, error.reason))
            resume = error.resume
        except BrokenFraming as error:
            return batches, [*errors, (type(error), len(batches), str(error))]


def starts(random: Random, kind: str) -> int:
    return 0 if kind == "0.7" else random.choice((0, 0, 1, 30, 2**31 + 10, 2**40 + 3))


def names_of(random: Random, kind: str) -> list[str]:
    known = list(column_rows.COLUMNS_07 if kind == "0.7" else column_rows.KNOWN)
    return random.sample(known, random.randint(1, len(known)))


def compared_columns(monkeypatch: pytest.MonkeyPatch, kind: str, data: bytes, start: int, **how: Any) -> None:
    """Decode a set into columns by both paths, and compare these."""
    found = columns_of(kind, data, start, **how)
    with monkeypatch.context() as plain:
        plain.setattr(kernel, "compiled", None)
        expected = columns_of(kind, data, start, **how)
    assert found == expected


@needs_kernel
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("cases", [600, pytest.param(40_000, marks=pytest.mark.slow)])
def test_both_paths_give_the_same(monkeypatch: pytest.MonkeyPatch, kind: str, cases: int) -> None:
    messages = 0
    for seed in range(cases):
        random = Random(f"{kind} {seed}")
        data = drawn_set(random, kind)
        if seed % 3:
            data = damaged(random, data, kind)
        how: dict[str, Any] = {"max_decoded_bytes": 1 << 20}
        if kind != "0.7":
            how["high_watermark"] = random.choice((None, None, 40, 2**40 + 50))
        if kind in ("record batches", "mixed"):
            how["aborted"] = random.choice(((), (), (AbortedTransaction(7, 0),)))
        try:
            start = starts(random, kind)
            messages += compared(monkeypatch, kind, data, start, **how)
            how |= {"max_batch_bytes": random.choice((1, 500, 1 << 20)), "columns": names_of(random, kind)}
            compared_columns(monkeypatch, kind, data, start, **how)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert messages > cases


def taken(kind: str, data: bytes, start: int, random: Random, **how: Any) -> list[Any]:
    """Return what polls of a few records each take of a chunk, and the error that ends it."""
    dialect = {"0.7": KAFKA07, "magic 0": KAFKA08}.get(kind, KAFKA011)
    opened = TakenRecords(None, None).opened(dialect, data, "t", 0, start, **how)
    records: list[Any] = []
    steps: list[Any] = [records]
    while True:
        try:
            is_over = opened.add_to(records, random.choice((1, 2, 7, 30, 1000)))
        except (MessageError, BrokenFraming) as error:
            return [*steps, (opened.count, opened.first, opened.next_place), type(error), str(error)]
        steps.append((opened.count, opened.first, opened.next_place))
        if is_over:
            return steps


@needs_kernel
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("cases", [600, pytest.param(40_000, marks=pytest.mark.slow)])
def test_both_paths_take_the_same_records(monkeypatch: pytest.MonkeyPatch, kind: str, cases: int) -> None:
    records = 0
    for seed in range(cases):
        random = Random(f"{kind} {seed}")
        data = drawn_set(random, kind)
        if seed % 3 == 0:
            data = damaged(random, data, kind)
        how: dict[str, Any] = {"max_decoded_bytes": 1 << 20}
        if kind in ("record batches", "mixed"):
            data = with_epochs(random, data)
            how["aborted"] = random.choice(((), (), (AbortedTransaction(7, 0),)))
        start = starts(random, kind)
        found = taken(kind, data, start, Random(seed), **how)
        with monkeypatch.context() as plain:
            plain.setattr(kernel, "compiled", None)
            expected = taken(kind, data, start, Random(seed), **how)
        assert found == expected, f"seed {seed}"
        records += len(found[0])
        assert all(type(each) is ConsumerRecord and type(each.timestamp_type) is TimestampType for each in found[0])
    assert records > cases


@needs_kernel
def test_records_of_bytes_are_no_work_for_the_collector_of_cycles() -> None:
    data = drawn_set(Random(5), "record batches")
    [records, *_] = taken("record batches", data, 0, Random(1))
    assert records
    assert not any(gc.is_tracked(each) for each in records)


def golden_sets() -> Iterator[tuple[str, bytes]]:
    """Yield every recorded set of a real broker."""
    for fetch in golden_frames.fetches():
        yield "magic 1", bytes(fetch.decode().message_set)
    for answer in golden_batches.answers():
        yield "mixed", bytes(answer.record_set)


@needs_kernel
def test_recorded_sets_cut_anywhere_and_with_flipped_bits_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, data in golden_sets():
        compared(monkeypatch, kind, data, 0)
        for at in range(min(len(data), 300)):
            compared(monkeypatch, kind, data[:at], 0)
            changed = bytearray(data)
            changed[at] ^= 1 << at % 8
            compared(monkeypatch, kind, bytes(changed), 0)


@needs_kernel
def test_checksums_are_those_of_the_libraries() -> None:
    random, by_crcmod = Random(1), codecs._by_crcmod()
    for size in [*range(300), 4095, 65_535, 65_536, 100_001]:
        data, before = random.randbytes(size), random.getrandbits(32)
        assert kernel.compiled.crc32(data) == zlib.crc32(data)
        assert kernel.compiled.crc32(data, before) == zlib.crc32(data, before)
        assert kernel.compiled.crc32c(data) == by_crcmod(data)
        assert kernel.compiled.crc32c(data[size // 2 :], kernel.compiled.crc32c(data[: size // 2])) == by_crcmod(data)


@needs_kernel
def test_a_buffer_is_let_go_when_its_run_ends() -> None:
    data = bytearray(drawn_set(Random(3), "record batches"))
    assert list(record_batch.decode_messages(data, "t", 0))
    data.clear()  # BufferError if it is still held


@pytest.mark.parametrize(
    ("value", "begins"),
    [("1", "plain Python, because ZKCONSUMER_PURE is set"), ("", kernel.description), ("0", kernel.description)],
)
def test_the_kernel_is_turned_off_by_the_environment(value: str, begins: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from simpleconsumer import kernel; print(kernel.description)"],
        env={**os.environ, "ZKCONSUMER_PURE": value}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    if "ZKCONSUMER_PURE" not in os.environ or value == "1":
        assert told.stdout.strip() == begins


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_checksums_are_those_computed_bit_by_bit_with_and_without_instructions(tmp_path: Path) -> None:
    folder = Path(__file__).parent
    check = tmp_path / "check"
    subprocess.run(
        ["gcc", "-O3", "-Wall", "-Werror", "-I", folder.parents[1] / "simpleconsumer" / "kernel",
         folder / "checksums_check.c", "-o", check], check=True, timeout=60,
    )  # fmt: skip
    told = subprocess.run([check], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stdout
    assert told.stdout.startswith("9680 buffers have the right checksums")


@needs_kernel
@pytest.mark.parametrize("kind", FORMATS)
def test_no_object_is_left_when_damaged_sets_are_decoded_again_and_again(kind: str) -> None:
    random = Random(kind)
    sets = [damaged(random, drawn_set(random, kind), kind) for _ in range(40)]

    def decode_all() -> int:
        for data in sets:
            decoded(kind, data, 0, max_decoded_bytes=1 << 20)
            columns_of(kind, data, 0, max_decoded_bytes=1 << 20, max_batch_bytes=500)
        gc.collect()
        return sys.getallocatedblocks()

    def growth() -> int:
        before = decode_all()
        return max(decode_all() for _ in range(6)) - before

    gc.collect()
    gc.freeze()  # or each collection would look at all that other tests have made
    try:
        decode_all()
        # One object lost in each set would be 240 each time; what threads of other tests keep is not there each time.
        assert min(growth() for _ in range(4)) < 100
    finally:
        gc.unfreeze()
