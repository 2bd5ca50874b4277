"""The picture of the demonstration fits on a terminal of 80 by 24 and says what there is to see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from tests.cli.command_line import run
from zkconsumer.cli.demo.display import Capture, PlainLines
from zkconsumer.cli.demo.scene import HEIGHT, WIDTH, Actor, Happening, Scene, draw

EMPTY = Scene(30.0, 200)
FULL = Scene(
    length_s=30.0,
    rate=200,
    elapsed_s=17.0,
    cluster="ZooKeeper 127.0.0.1:65535, 2 brokers",
    partitions=tuple("01234567"),
    owners=("ann", "ann", "ann", None, "bob", "bob", "cleo", "cleo"),
    lag=(0, 0, 0, 12_345, 0, 0, 7, 0),
    actors=(
        Actor("ann", "consuming", 12_345_678, (0, 1, 100, 200) * 3),
        Actor("bob", "leaving", 0, (0,) * 12),
        Actor("cleo", "killed", 7, (1000,) * 12),
    ),
    produced=99_999_999,
    delivered=99_999_900,
    repeated=44,
    happenings=tuple(Happening(float(at), f"event {at} " + "x" * 100) for at in range(20)),
)


def shown(scene: Scene, width: int = WIDTH) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(draw(scene))
    console.file.close()
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize("scene", [EMPTY, FULL], ids=["empty", "full"])
def test_it_fits(scene: Scene) -> None:
    lines = shown(scene)
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH


def test_the_height_stays_the_same_so_that_nothing_jumps() -> None:
    assert len(shown(EMPTY)) == len(shown(FULL))


def test_the_picture_shows_owners_and_the_latest_events() -> None:
    text = "\n".join(shown(FULL))
    assert "owner ann ann ann — bob bob cleo cleo" in " ".join(text.split())
    assert "12345" in text
    assert "event 19" in text
    assert "event 11 " not in text
    assert "repeated 44" in text


def test_plain_lines_are_printed_once_each_with_counts_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines()
    first = Scene(30.0, 200, elapsed_s=1.0, happenings=(Happening(1.0, "up"),))
    with lines.open():
        lines.show(first)
        lines.show(first)
        lines.show(FULL)
    lines.finish(FULL)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "  1.0 s  up"
    assert printed.count("  1.0 s  up") == 1
    assert [line for line in printed if "produced 99999999, delivered 99999900 (1200 in the last second)" in line]
    assert printed[-1].endswith("repeated 44")


def test_a_capture_is_one_well_formed_picture_with_a_frame_for_each_second(tmp_path: Path) -> None:
    capture = Capture(PlainLines(), tmp_path / "demo.svg")
    for tenths in range(31):
        capture.show(replace(FULL, elapsed_s=tenths / 10))
    capture.finish(replace(FULL, elapsed_s=3.1))
    root = ElementTree.parse(tmp_path / "demo.svg").getroot()
    frames = [each for each in root if each.get("class") == "frame"]
    assert len(frames) == 4 + 4  # at 0, 1, 2 and 3 s, and the last one for a while
    assert all("cleo" in "".join(frame.itertext()) for frame in frames)


def test_a_capture_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ended = run("demo", "--capture", str(tmp_path / "nowhere" / "demo.svg"))
    assert ended.returncode == 1
    assert ended.stdout == b""
    assert b"nowhere/demo.svg: No such file or directory" in ended.stderr
