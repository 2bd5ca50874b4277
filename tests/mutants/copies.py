"""Makes the copy of the tree in which one module is changed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["make_copy"]

_EXAMPLES = "max_examples=12, derandomize=True"
"""A property is tried on few examples, always the same: a mutant that survives one run survives the next."""


def make_copy(folder: Path, module: str, tests: Sequence[str]) -> Path:
    """Copy the files that git knows to a folder, add a section for mutmut to its setup.cfg, and return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        source = Path(name)
        if name and source.is_file():
            (folder / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / source)
    for path in (folder / "tests").rglob("*.py"):
        text = path.read_text()
        fewer = re.sub(r"max_examples=[0-9_]+", _EXAMPLES, text)
        fewer = re.sub(r"^((?!.*max_examples).*deadline=None)\)", rf"\1, {_EXAMPLES})", fewer, flags=re.MULTILINE)
        if fewer != text:
            path.write_text(fewer)
    with (folder / "setup.cfg").open("a") as file:
        file.write(_section(module, tests))
    return folder


def _section(module: str, tests: Sequence[str]) -> str:
    """Return the section `[mutmut]`: each value of a list on an indented line of its own."""
    settings = {
        "source_paths": ["rebalance", "simpleconsumer", "zkconsumer"],
        "only_mutate": [module],
        "also_copy": [
            "docs",
            "examples",
            "README.md",
            "ruff.toml",
            "pyproject.toml",
            "pyspark_zkconsumer.py",
            "zkconsumer_error.py",
        ],
        "timeout_multiplier": ["5"],  # of the time that its tests take; a mutant without end takes ten times its CPU
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": list(tests),
    }
    return "\n[mutmut]\n" + "".join(
        f"{name} =\n" + "".join(f"    {value}\n" for value in values) for name, values in settings.items()
    )
