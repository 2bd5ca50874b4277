"""Which batch of a stream is finished, by the files of its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkconsumer.spark.streaming.group_offsets import FinishedBatch, newest_finished


def write(checkpoint: Path, kind: str, number: int, *ends: str) -> None:
    folder = checkpoint / kind
    folder.mkdir(exist_ok=True, parents=True)
    (folder / str(number)).write_text("\n".join(["v1", "{}", *ends]))
    (folder / f".{number}.crc").write_bytes(b"crc")


def test_a_batch_that_was_only_planned_is_not_finished(tmp_path: Path):
    for number in range(12):
        write(tmp_path, "offsets", number, f'{{"clicks": {{"0": {number}}}}}')
    for number in range(11):
        write(tmp_path, "commits", number)
    assert newest_finished(str(tmp_path)) == FinishedBatch(10, ['{"clicks": {"0": 10}}'])


def test_each_source_has_its_line_and_a_path_may_be_a_uri(tmp_path: Path):
    write(tmp_path, "offsets", 0, '{"clicks": {"0": 1}}', "-")
    write(tmp_path, "commits", 0)
    for uri in (f"file:{tmp_path}", f"file://{tmp_path}"):
        assert newest_finished(uri) == FinishedBatch(0, ['{"clicks": {"0": 1}}', None])


def test_before_the_first_batch_is_finished_there_is_none(tmp_path: Path):
    assert newest_finished(str(tmp_path)) is None
    write(tmp_path, "offsets", 0, "{}")
    assert newest_finished(str(tmp_path)) is None


def test_a_folder_that_is_not_there_or_no_checkpoint_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match=r"the checkpoint folder .* does not exist"):
        newest_finished(str(tmp_path / "gone"))
    write(tmp_path, "commits", 0)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v9\nsomething else")
    with pytest.raises(ValueError, match="not written as Spark 4"):
        newest_finished(str(tmp_path))
