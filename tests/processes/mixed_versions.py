"""Run groups of our members and Java's, of every version, and write their table into docs/COMPATIBILITY.md.

`python tests/processes/mixed_versions.py --write` runs all, twenty-five minutes; `... --write 0.8.2.2` one version and
keeps the rows of the others. Each course is run twice: with members of both kinds, and with Java members alone. The
status is 1 if our members did anything wrong, or made Java members give up.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":
    ROOT = Path(__file__).parents[2]  # before the folders of its tests, which have the names of its packages
    sys.path += [str(ROOT), str(ROOT / "tests")]

from mixed_courses import KAFKA_NODE, courses
from mixed_kafka_node import missing_tools
from mixed_outcome import Outcome, given_up_for_us, run
from mixed_stage import mixed_cluster

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka import kafka_versions
from zkconsumer.testing.kafka.known_versions import KAFKA_07_JAR, is_07
from zkconsumer.testing.kafka.settings import version_tuple

DOCUMENT = Path(__file__).parents[2] / "docs" / "COMPATIBILITY.md"
BEGIN = "<!-- mixed groups: written by python tests/processes/mixed_versions.py --write -->"
END = "<!-- mixed groups: end -->"
HEAD = (
    "| Java | course | slowest common table | Java alone | Java gave up | Java alone | zkconsumer to Java, exact | "
    "Java to zkconsumer, exact | lost | delivered again because of zkconsumer | in all | Java alone |"
)
VERSIONS = [version for version in kafka_versions() if version_tuple(version) < (2,)]
ORDER = ["range", "roundrobin", "filters", KAFKA_NODE]

Key = tuple[str, str]
"""Version and course."""


def row(version: str, mixed: Outcome, alone: Outcome) -> str:
    """The line of a course."""
    there, back = (f"{exact} of {handed}" for exact, handed in zip(mixed.exact, mixed.handed, strict=True))
    cells = [
        version, mixed.course, mixed.slowest(), alone.slowest(), mixed.gave_up, alone.gave_up, there, back,
        mixed.lost, mixed.repeated_by_ours, mixed.repeated, alone.repeated,
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def rows_of(text: str) -> dict[Key, str]:
    """The rows that a document has, by version and course."""
    table = text.partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and line != HEAD]
    return {(cells[1].strip(), cells[2].strip()): line for line in rows for cells in [line.split("|")]}


def with_rows(text: str, rows: Mapping[Key, str]) -> str:
    """The document with new rows; others stay.

    Raises:
        ValueError: the document has not exactly one pair of markers.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"one line {BEGIN!r} and one line {END!r} are needed")
    known = {**rows_of(text), **rows}
    ordered = sorted(known, key=lambda key: (version_tuple(key[0]), ORDER.index(key[1])))
    table = "\n".join([HEAD, "|---" * (HEAD.count("|") - 1) + "|", *(known[key] for key in ordered)])
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def run_version(version: str, wanted: Collection[str]) -> tuple[dict[Key, str], list[str]]:
    """The rows of a version, and what was wrong."""
    rows: dict[Key, str] = {}
    wrong: list[str] = []
    with mixed_cluster(version) as cluster:
        for course in courses(version):
            if course.name not in wanted:
                continue
            try:
                mixed, alone = (run(cluster, course, cast) for cast in ("mixed", "java"))
            except (KitError, AssertionError) as error:
                wrong.append(f"{version} {course.name} came to no end: {error}")
                continue
            rows[version, course.name] = row(version, mixed, alone)
            print(f"{version} {mixed}\n{version} {alone}", flush=True)
            said = [*mixed.wrong, given_up_for_us(mixed, alone)]
            wrong += [f"{version} {course.name}: {each}" for each in said if each]
    return rows, wrong


def main(arguments: Sequence[str]) -> int:
    """Run the versions that are named, or all; the status of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)}; default: all")
    parser.add_argument("--course", action="append", choices=ORDER, help="only this one; may be repeated")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {DOCUMENT.name}")
    options = parser.parse_args(arguments)
    unknown = set(options.versions) - set(VERSIONS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: known are {', '.join(VERSIONS)}")
    wanted = set(options.course or ORDER)
    if KAFKA_NODE in wanted and missing_tools():
        wanted.remove(KAFKA_NODE)
        print(f"{KAFKA_NODE} is left out: no {', '.join(missing_tools())} here", file=sys.stderr)
    wrong: list[str] = []
    print(HEAD)
    for version in options.versions or VERSIONS:
        if is_07(version) and not os.environ.get(KAFKA_07_JAR):
            print(f"{version} is left out: {KAFKA_07_JAR} does not name a jar of it", file=sys.stderr)
            continue
        rows, said = run_version(version, wanted)
        wrong += said
        print("\n".join(rows.values()), flush=True)
        if options.write and not said:
            DOCUMENT.write_text(with_rows(DOCUMENT.read_text(encoding="utf-8"), rows), encoding="utf-8")
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
