"""Names the sets of tests that the default suite leaves out while the files that they test have not changed.

    python tests/sets.py                 # which sets `tests/run` and `.ci/run` leave out
    tests/run --all-sets                 # runs the default suite with all sets

`tests/sets.passed` holds a hash of the files of each set when its tests last passed. A run of the default suite in
which all tests of a set pass writes the hash, and so does `.ci/run` for the parts that it runs by itself; commit the
file with the change. `.ci/run` leaves out a set whose hash is still right. Each hash covers `setup.cfg`, too, as that
names what the packages need.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PASSED: Final = ROOT / "tests" / "sets.passed"
_LEFT_OUT: Final = {".pyc", ".so"}


class SetOfTests(NamedTuple):
    """Some tests of the default suite, and what they test.

    Attributes:
        tests: Folders and files of tests.
        tested: Folders and files that the tests test, beside the tests themselves.
    """

    tests: tuple[str, ...]
    tested: tuple[str, ...]

    def files(self) -> Iterator[Path]:
        """Yield all files that the hash covers, in order."""
        for name in sorted({*self.tests, *self.tested, "setup.cfg"}):
            path = ROOT / name
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file() and file.suffix not in _LEFT_OUT:
                    yield file

    def hash(self) -> str:
        """Return a hash of the names and the contents of the files."""
        found = hashlib.sha256()
        for file in self.files():
            found.update(file.relative_to(ROOT).as_posix().encode() + b"\0")
            found.update(hashlib.sha256(file.read_bytes()).digest())
        return found.hexdigest()

    def has(self, path: Path) -> bool:
        """Return whether a file of tests is in the set."""
        return any(path.is_relative_to(ROOT / name) for name in self.tests)


_SPARK: Final = (
    "zkconsumer/spark", "zkconsumer/cli/load.py", "zkconsumer/cluster", "zkconsumer/config", "zkconsumer/fetching",
    "zkconsumer/producer", "simpleconsumer",
)  # fmt: skip

SETS: Final[Mapping[str, SetOfTests]] = {
    "formats": SetOfTests(
        ("tests/simpleconsumer",), ("simpleconsumer", "zkconsumer/polling", "tests/golden"),
    ),
    "logs on disk": SetOfTests(
        ("tests/log",), ("zkconsumer/log", "zkconsumer/cli/log.py", "simpleconsumer"),
    ),
    "spark": SetOfTests(("tests/spark",), _SPARK),
    "embedded brokers": SetOfTests(
        ("tests/embedded",), ("simpleconsumer", "zkconsumer/testing", "tests/golden"),
    ),
    "test kit": SetOfTests(
        ("tests/testing", "tests/refusals/test_kit.py", "tests/refusals/test_kit_refused.py",
         "tests/cli/test_cluster_up.py"),
        ("zkconsumer/testing", "zkconsumer/cli/cluster.py"),
    ),
    "simulation": SetOfTests(
        ("tests/simulation",),
        ("rebalance", "tests/simulator", "zkconsumer/fetching", "zkconsumer/member", "zkconsumer/offsets",
         "zkconsumer/streams", "zkconsumer/testing/embedded/group.py",
         "zkconsumer/testing/embedded/group_values.py", "zkconsumer/testing/history"),
    ),
}  # fmt: skip

PARTS_OF_CI: Final[Mapping[str, SetOfTests]] = {
    "formats without the kernel": SetOfTests(("tests/simpleconsumer",), ("simpleconsumer", "tests/golden")),
    "delta tables": SetOfTests(("tests/spark/test_load_delta.py",), _SPARK),
}  # fmt: skip
"""What `.ci/run` runs by itself, after the default suite."""


def passed() -> dict[str, str]:
    """Return the hash with which each set last passed."""
    lines = PASSED.read_text(encoding="utf-8").splitlines() if PASSED.exists() else []
    return {name: value for name, _, value in (line.partition(": ") for line in lines)}


def unchanged() -> list[str]:
    """Return the names of the sets whose files are those with which they last passed."""
    known = passed()
    return [name for name, tests in _all().items() if known.get(name) == tests.hash()]


def record(names: list[str]) -> None:
    """Write that sets have passed with their files as they are now."""
    found = passed() | {name: _all()[name].hash() for name in names}
    text = "".join(f"{name}: {found[name]}\n" for name in _all() if name in found)
    if not PASSED.exists() or PASSED.read_text(encoding="utf-8") != text:
        PASSED.write_text(text, encoding="utf-8")


def _all() -> dict[str, SetOfTests]:
    return {**SETS, **PARTS_OF_CI}


def main() -> None:
    """Print what the default suite does with each set, or answer `.ci/run`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changed", metavar="SET", help="exit status 0 if the files of this set have changed")
    parser.add_argument("--passed", metavar="SET", help="write that this set has passed")
    arguments = parser.parse_args()
    known = unchanged()
    if arguments.passed:
        record([arguments.passed])
    elif arguments.changed:
        sys.exit(arguments.changed in known)
    else:
        for name in _all():
            print(f"{name}: {'left out, as its files have not changed since it passed' if name in known else 'run'}")


if __name__ == "__main__":
    main()
