"""Reads `equal.txt`: the mutants that make no difference to a caller, each with the reason."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.results import Change

__all__ = ["equal_changes"]


def equal_changes(module: str) -> set[Change]:
    """Return the changes of a module that are equal to what was there.

    The file has blocks with an empty line between them. The first line of a block names the file and the function,
    lines with `- ` and `+ ` are what the mutant removes and adds, and the rest says why no caller could see it.

    Raises:
        SystemExit: A block lacks its function, its lines or its reason.
    """
    changes = set()
    text = Path(__file__).with_name("equal.txt").read_text()
    for block in text.split("\n\n"):
        lines = [line for line in block.strip().splitlines() if not line.startswith("#")]
        if not lines:
            continue
        file, _, function = lines[0].partition(" ")
        changed = tuple(line for line in lines[1:] if line.startswith(("- ", "+ ")))
        if not function or not changed or len(changed) == len(lines) - 1:
            raise SystemExit(f"equal.txt: a block needs its file and function, its lines and its reason: {block!r}")
        if file == module:
            changes.add(Change(function, changed))
    return changes
