"""How long each file of tests took in the last full run, by which the default suite starts with the longest files.

`tests/durations.txt` has a line for each file that takes seconds. A run of the default suite in which all tests pass
writes it; commit the file with the change. A file's line stays as it is while it is about right, so that most changes
leave all lines alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDED: Final = ROOT / "tests" / "durations.txt"
SHORTEST_S: Final = 3
"""A file that takes less has no line: it hardly matters when it starts."""
_ABOUT: Final = 1.6


def recorded() -> dict[str, int]:
    """Return the seconds of each file that has a line."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    return {name: int(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def record(measured: Mapping[str, float]) -> None:
    """Write how long files took, the longest first.

    Args:
        measured: Seconds by file. Files that did not run keep their lines, unless they are gone.
    """
    before = recorded()
    after = {name: seconds for name, seconds in before.items() if (ROOT / name).is_file()}
    for name, seconds in measured.items():
        if not _is_about(before.get(name, 0), seconds):
            after[name] = round(seconds)
    rows = sorted(after.items(), key=lambda row: (-row[1], row[0]))
    text = "".join(f"{seconds:4} {name}\n" for name, seconds in rows if seconds >= SHORTEST_S)
    if not RECORDED.exists() or RECORDED.read_text(encoding="utf-8") != text:
        RECORDED.write_text(text, encoding="utf-8")


def _is_about(known: float, measured: float) -> bool:
    """Whether a recorded value is good enough, as no run is like another."""
    low, high = sorted((max(known, SHORTEST_S), max(measured, SHORTEST_S)))
    return known > 0 and high <= low * _ABOUT
