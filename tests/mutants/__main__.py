"""Changes the code in small ways, one at a time, and prints the changes that no test notices.

    pip install -e '.[test,mutants]'
    python -m tests.mutants                                  # every module of `modules.py`: about 40 minutes
    python -m tests.mutants rebalance/zookeeper/machine.py --show   # one module, and each change that no test noticed

mutmut makes the changes ("mutants") and runs the tests of `modules.py` on each, in a copy of the files that git knows.
A change that never ends is noticed too. Those that `equal.txt` lists make no difference that a caller could see; they
are left out of the share. Status 1 if the share of all modules is below 95 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.mutants.copies import make_copy
from tests.mutants.equal import equal_changes
from tests.mutants.modules import TESTS
from tests.mutants.results import Change, changes_of

WANTED = 0.95


class Figures(NamedTuple):
    """The mutants of one module: those that tests noticed, that are equal, and that no test noticed."""

    module: str
    noticed: int
    equal: int
    unnoticed: Sequence[Change]

    def share(self) -> float:
        """Return the share of distinguishable mutants that were noticed, from 0 to 1."""
        return self.noticed / max(1, self.noticed + len(self.unnoticed))

    def line(self) -> str:
        """Return a line of the table."""
        return f"{self.module:40}{self.noticed:9}{self.equal:7}{len(self.unnoticed):11}{100 * self.share():8.1f} %"


def run_module(folder: Path, module: str) -> Figures:
    """Run mutmut over one module in a copy of its own, and return its figures.

    Raises:
        SystemExit: mutmut has failed; with the end of what it has written.
    """
    copy = make_copy(folder / module.replace("/", "."), module, TESTS[module])
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1"]
    ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode:
        raise SystemExit(f"mutmut failed on {module}:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
    noticed, unnoticed = changes_of(copy, module)
    equal = equal_changes(module)
    told_apart = [change for change in unnoticed if change not in equal]
    return Figures(module, noticed, len(unnoticed) - len(told_apart), told_apart)


def main() -> int:
    """Run the modules that the command line names, print a line for each as it is done, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a file of modules.py; all if none is named")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time")
    parser.add_argument("--show", action="store_true", help="print each change that no test noticed")
    parser.add_argument("--folder", type=Path, default=Path("build/mutants"), help="where the copies are made")
    arguments = parser.parse_args()
    modules = arguments.modules or list(TESTS)
    if unknown := [module for module in modules if module not in TESTS]:
        parser.error(f"tests/mutants/modules.py names no tests for {', '.join(unknown)}")
    print(f"{'':40}{'noticed':>9}{'equal':>7}{'unnoticed':>11}{'share':>10}", flush=True)
    done = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for figures in pool.map(partial(run_module, arguments.folder), modules):
            done.append(figures)
            print(figures.line(), flush=True)
            if arguments.show:
                print("\n".join(str(change) for change in figures.unnoticed), flush=True)
    total = Figures(
        f"{len(done)} modules",
        sum(one.noticed for one in done),
        sum(one.equal for one in done),
        [change for one in done for change in one.unnoticed],
    )
    print(total.line())
    return 0 if total.share() >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
