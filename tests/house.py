"""Measures how finely the code is cut: files, folders, imports, names, and lines of documentation.

    python tests/house.py               # the figures, each with its bound
    python tests/house.py --names       # also which folders, files and names they count

`tests/test_house.py` holds the bounds. A change may lower a bound; it does not raise one.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("simpleconsumer", "rebalance", "zkconsumer")
MOST_FILES_OF_A_FOLDER: Final = 25
SMALL_LINES: Final = 40
"""A file with fewer lines of code is small: often it belongs to its neighbour."""


@dataclass
class Figure:
    """One measured figure.

    Attributes:
        value: What was measured.
        bound: The most that it may be.
        names: What it counts.
    """

    value: float
    bound: float
    names: list[str] = field(default_factory=list)


@dataclass
class Source:
    """What one file has of each kind of line."""

    path: Path
    code: int
    imports: int
    classes: list[str]


def sources() -> Iterator[Source]:
    """Yield each Python file that the packages ship."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
            yield Source(path.relative_to(ROOT), len(code_lines(text, tree)), len(import_lines(tree)), [
                node.name for node in tree.body if isinstance(node, ast.ClassDef)
            ])  # fmt: skip


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the lines that hold code: neither blank lines nor comments nor docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


_NO_CODE: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def import_lines(tree: ast.Module) -> set[int]:
    """Return the lines of imports and of `__all__`."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        is_all = isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        )
        if is_all or isinstance(node, ast.Import | ast.ImportFrom):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def measure() -> dict[str, Figure]:
    """Return all figures by what they measure."""
    found = list(sources())
    code = sum(source.code for source in found)
    folders = Counter(source.path.parent for source in found)
    large = {folder: count for folder, count in folders.items() if count > MOST_FILES_OF_A_FOLDER}
    small = [source for source in found if 0 < source.code < SMALL_LINES]
    names = _more_than_once((source.path.name, source.path.as_posix()) for source in found)
    names.pop("__init__.py", None)
    classes = _more_than_once((name, source.path.as_posix()) for source in found for name in source.classes)
    architecture = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").count("\n")
    return {
        "files": Figure(len(found), MOST["files"]),
        "lines of code": Figure(code, MOST["lines of code"]),
        "folders with more than 25 files": Figure(len(large), MOST["folders with more than 25 files"], [
            f"{folder.as_posix()} {count}" for folder, count in large.items()
        ]),
        "files with fewer than 40 lines of code": Figure(
            len(small), MOST["files with fewer than 40 lines of code"],
            [f"{source.path.as_posix()} {source.code}" for source in small],
        ),
        "imports and __all__, in percent of the code": Figure(
            round(100 * sum(source.imports for source in found) / code, 1),
            MOST["imports and __all__, in percent of the code"],
        ),
        "file names that several files have": Figure(len(names), MOST["file names that several files have"], [
            f"{name} {len(paths)}" for name, paths in names.items()
        ]),
        "class names that several files have": Figure(len(classes), MOST["class names that several files have"], [
            f"{name}: {', '.join(paths)}" for name, paths in classes.items()
        ]),
        "lines of docs/ARCHITECTURE.md": Figure(architecture, MOST["lines of docs/ARCHITECTURE.md"]),
    }  # fmt: skip


def _more_than_once(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, path in pairs:
        by_name[name].append(path)
    return {name: paths for name, paths in sorted(by_name.items()) if len(paths) > 1}


MOST: Final[dict[str, float]] = {
    "files": 564,
    "lines of code": 82800,
    "folders with more than 25 files": 0,
    "files with fewer than 40 lines of code": 33,
    "imports and __all__, in percent of the code": 10.1,
    "file names that several files have": 44,
    "class names that several files have": 90,
    "lines of docs/ARCHITECTURE.md": 321,
}
"""The bounds: what each figure was when it was last lowered."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", action="store_true", help="also print what each figure counts")
    arguments = parser.parse_args()
    for what, figure in measure().items():
        print(f"{figure.value:>8} of at most {figure.bound:>8}  {what}")
        for name in figure.names if arguments.names else ():
            print(f"{'':>27}  {name}")


if __name__ == "__main__":
    main()
