"""The manifest of a run, written and read."""

from __future__ import annotations

import json

import pytest

from zkconsumer.spark.load.errors import LoadRefused
from zkconsumer.spark.load.manifest import LoadedPartition, Manifest, StagedFile, run_name, run_number

MANIFEST = Manifest(
    run=3,
    run_id="ab12",
    began_at="2014-03-01T10:00:00Z",
    zookeeper="zk1:2181/kafka",
    format="parquet",
    partition_by="hour",
    ends={"clicks": {0: 12, 10: 4, 2: 0}, "später": {0: 1}},
    births={"clicks": 77, "später": 78},
    partitions=(LoadedPartition("clicks", 0, 3, 12, 8, 901, bad=1), LoadedPartition("clicks", 10, 0, 4, 4, 5)),
    files=(StagedFile("_zkconsumer/staging/x/a.parquet", "topic=clicks/a.parquet"),),
)


@pytest.mark.parametrize("manifest", [MANIFEST, Manifest(1, "", "", "", "json", "none", {}, {})])
def test_what_is_written_is_read(manifest: Manifest) -> None:
    assert Manifest.from_json("p", manifest.to_json()) == manifest


def test_each_partition_and_file_has_a_line() -> None:
    lines = MANIFEST.to_json().splitlines()
    assert sum("staging" in line for line in lines) == 1
    assert sum(line.startswith('  ["clicks"') for line in lines) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', MANIFEST.to_json()[:200]])
def test_what_is_none_is_refused_by_its_path(text: str) -> None:
    with pytest.raises(LoadRefused, match=r"runs/000000001\.json is no manifest"):
        Manifest.from_json("runs/000000001.json", text)


def test_a_later_format_is_refused() -> None:
    fields = {**json.loads(MANIFEST.to_json()), "version": 2}
    with pytest.raises(LoadRefused, match="version 2; this release knows 1"):
        Manifest.from_json("p", json.dumps(fields))


def test_names_of_runs_sort_as_their_numbers() -> None:
    assert sorted(run_name(n) for n in (10, 9, 1)) == [run_name(n) for n in (1, 9, 10)]
    assert run_number(f"{run_name(12)}.json") == 12
    for name in ("12.json", f".{run_name(12)}.json.ab", f"{run_name(12)}.json.crc", "x"):
        assert run_number(name) is None
