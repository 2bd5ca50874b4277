"""Runs mypy in strict mode on lines of code, and says what it reports about each line."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[1]


def complaints_about(snippets: str, folder: Path) -> dict[int, str]:
    """Line -> what mypy says about it, notes of `reveal_type` included."""
    (folder / "snippets.py").write_text(snippets, encoding="utf-8")
    out, errors, _ = api.run([
        "--config-file", str(ROOT / "setup.cfg"), "--strict", "--no-pretty", "--hide-error-context",
        "--cache-dir", str(folder / "cache"), str(folder / "snippets.py"),
    ])  # fmt: skip
    assert not errors
    assert "snippets.py" in out, out
    found: dict[int, str] = {}
    for line in out.splitlines():
        place = re.match(r".*snippets\.py:(\d+): (?:error|note): (.*)", line)
        if place:
            found[int(place[1])] = found.get(int(place[1]), "") + place[2]
    return found
