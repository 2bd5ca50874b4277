"""Which files are put together, which files count, and what a compaction leaves in writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.spark.load.compaction_manifest import (
    Compaction,
    LakeFile,
    Replacement,
    live_files,
    plan_groups,
    portions_of,
)
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.manifest import LoadedPartition, LoadState, Manifest, StagedFile
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

DAY, NEXT_DAY = "topic=clicks/date=2014-03-01", "topic=clicks/date=2014-03-02"


def file(name: str, size_bytes: int, created_zxid: int | None = 7, directory: str = DAY) -> LakeFile:
    return LakeFile(f"{directory}/{name}", size_bytes, created_zxid)


def names(groups: list[tuple[LakeFile, ...]]) -> list[list[str]]:
    return [[each.path.rpartition("/")[2] for each in group] for group in groups]


def run(number: int, *finals: str, created_zxids: Mapping[str, int] | None = None) -> Manifest:
    state = LoadState(StreamOffsets({}, created_zxids or {"clicks": 7}))
    files = tuple(StagedFile(f"_zkconsumer/staging/{number}/{n}", final) for n, final in enumerate(finals))
    return Manifest(number, f"id{number}", "2014-03-01", "zk", "parquet", "date", state, files=files)


def compaction(number: int, *replacements: tuple[str, tuple[str, ...]]) -> Compaction:
    return Compaction(number, f"id{number}", "2014-03-01",
                      tuple(Replacement("staged", final, old) for final, old in replacements))  # fmt: skip


def of(part: int, start: int, end: int) -> LoadedPartition:
    return LoadedPartition("clicks", part, start, end, end - start, 0)


# -- groups ------------------------------------------------------------------------------------------------------------


def test_files_are_filled_up_to_the_size_in_the_order_of_their_names() -> None:
    files = [file(name, 40) for name in "dbca"]
    assert names(plan_groups(files, 100)) == [["a", "b"], ["c", "d"]]


def test_a_file_alone_is_left_as_it_is() -> None:
    assert plan_groups([file("a", 1)], 100) == []
    assert names(plan_groups([file("a", 40), file("b", 40), file("c", 70)], 100)) == [["a", "b"]]


def test_a_file_of_three_quarters_of_the_size_is_large_enough() -> None:
    assert plan_groups([file("a", 75), file("b", 1)], 100) == []
    assert names(plan_groups([file("a", 74), file("b", 1)], 100)) == [["a", "b"]]


def test_directories_stay_apart() -> None:
    files = [file("a", 1), file("b", 1, directory=NEXT_DAY), file("c", 1), file("d", 1, directory=NEXT_DAY)]
    assert names(plan_groups(files, 100)) == [["a", "c"], ["b", "d"]]


def test_files_from_before_and_after_a_topic_was_created_anew_stay_apart() -> None:
    files = [file("a", 1, 7), file("b", 1, 7), file("c", 1, 9), file("d", 1, 9), file("e", 1, None)]
    assert names(plan_groups(files, 100)) == [["a", "b"], ["c", "d"]]


@given(st.lists(st.tuples(st.integers(0, 120), st.sampled_from([7, 9]), st.sampled_from([DAY, NEXT_DAY]))))
def test_groups_hold_what_is_small_once_and_never_more_than_the_size(drawn: list[tuple[int, int, str]]) -> None:
    files = [file(f"{number:03}", *each) for number, each in enumerate(drawn)]
    groups = plan_groups(files, 100)
    grouped = [each for group in groups for each in group]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= set(files)
    for group in groups:
        assert len(group) > 1
        assert sum(each.size_bytes for each in group) <= 100
        assert len({(each.directory, each.created_zxid) for each in group}) == 1


def test_portions_are_of_about_so_many_bytes_and_files() -> None:
    groups = [(file(name, 30), file(name + name, 30)) for name in "abcd"]
    assert [names(portion) for portion in portions_of(groups, 130, 100)] == [
        [["a", "aa"], ["b", "bb"]], [["c", "cc"], ["d", "dd"]],
    ]  # fmt: skip
    assert [len(portion) for portion in portions_of(groups, 10, 100)] == [1, 1, 1, 1]  # each at least one
    assert [len(portion) for portion in portions_of(groups, 1000, 6)] == [3, 1]
    assert [*portions_of([], 10, 10)] == []


# -- what counts -------------------------------------------------------------------------------------------------------


def counted(runs: list[Manifest], done: list[Compaction], *there: str) -> list[str]:
    return [each.path.rpartition("/")[2] for each in live_files(runs, done, dict.fromkeys(there, 5))]


def test_files_of_runs_count_and_others_do_not() -> None:
    a, b, alien = f"{DAY}/a", f"{DAY}/b", f"{DAY}/alien"
    assert counted([run(1, a), run(2, b, "_bad/x.json")], [], a, b, alien) == ["a", "b"]


def test_the_old_files_count_until_the_new_one_is_in_its_place() -> None:
    a, b, ab = f"{DAY}/a", f"{DAY}/b", f"{DAY}/ab"
    done = [compaction(1, (ab, (a, b)))]
    assert counted([run(1, a), run(2, b)], done, a, b) == ["a", "b"]
    assert counted([run(1, a), run(2, b)], done, a, b, ab) == ["ab"]
    assert counted([run(1, a), run(2, b)], done, b, ab) == ["ab"]
    assert counted([run(1, a), run(2, b)], done, ab) == ["ab"]


def test_a_file_that_was_replaced_twice_has_one_that_counts() -> None:
    a, b, c, ab, abc = (f"{DAY}/{name}" for name in ("a", "b", "c", "ab", "abc"))
    runs, done = [run(1, a), run(2, b), run(3, c)], [compaction(1, (ab, (a, b))), compaction(2, (abc, (ab, c)))]
    assert counted(runs, done, ab, c) == ["ab", "c"]
    assert counted(runs, done, abc, ab, c) == ["abc"]
    assert counted(runs, done, abc) == ["abc"]


def test_what_an_operator_has_removed_does_not_come_back() -> None:
    a, b, ab = f"{DAY}/a", f"{DAY}/b", f"{DAY}/ab"
    assert counted([run(1, a), run(2, b)], [], b) == ["b"]
    assert counted([run(1, a), run(2, b)], [compaction(1, (ab, (a, b)))]) == []


def test_a_new_file_is_of_the_incarnation_of_those_it_replaces() -> None:
    a, b, ab, c = (f"{DAY}/{name}" for name in ("a", "b", "ab", "c"))
    runs = [run(1, a, b, created_zxids={"clicks": 7}), run(2, c, created_zxids={"clicks": 9})]
    found = live_files(runs, [compaction(1, (ab, (a, b)))], {ab: 1, c: 2})
    assert found == (LakeFile(ab, 1, 7), LakeFile(c, 2, 9))


# -- in writing --------------------------------------------------------------------------------------------------------


def test_a_compaction_is_read_as_it_was_written() -> None:
    some = compaction(3, (f"{DAY}/grün", (f"{DAY}/a", f"{DAY}/b")), (f"{DAY}/cd", (f"{DAY}/c", f"{DAY}/d")))
    for each in (some, compaction(4)):
        assert Compaction.from_json("x", each.to_json()) == each
    assert len(some.to_json().splitlines()) == 9  # a line for each new file


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "replacements": [1]}'])
def test_what_is_no_compaction_is_refused(text: str) -> None:
    with pytest.raises(LoadRefused, match=r"lake/3\.json is not a manifest of a compaction"):
        Compaction.from_json("lake/3.json", text)


def test_a_later_version_is_refused() -> None:
    with pytest.raises(LoadRefused, match="has version 2; this release supports 1"):
        Compaction.from_json("3.json", compaction(3).to_json().replace('"version": 1', '"version": 2'))


def test_files_from_before_and_after_a_cut_stay_apart() -> None:
    """The same offsets are other messages there."""
    paths = [f"{DAY}/{name}" for name in "abcd"]
    loaded = [(of(0, 0, 5), of(1, 0, 9)), (of(0, 5, 10),), (of(0, 6, 8), of(1, 9, 12)), (of(0, 8, 9),)]
    runs = [replace(run(n, path), partitions=done) for n, (path, done) in enumerate(zip(paths, loaded, strict=True), 1)]
    found = live_files(runs, [], dict.fromkeys(paths, 1))
    assert names(plan_groups(found, 100)) == [["a", "b"], ["c", "d"]]
    merged = compaction(1, (f"{DAY}/cd", (paths[2], paths[3])))
    assert [each.cuts for each in live_files(runs, [merged], dict.fromkeys([*paths, f"{DAY}/cd"], 1))] == [0, 0, 1]
