"""An editable installation, as README makes it: Spark finds the format there, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools.command.editable_wheel")

ROOT = Path(__file__).parents[2]
WAIT_S = 120
KIND = """
from setuptools.command.editable_wheel import editable_wheel
from setuptools.dist import Distribution
project = Distribution({"script_name": "setup.py"})
project.parse_config_files(["setup.cfg"])
command = editable_wheel(project)
command.ensure_finalized()
print(type(command._select_strategy("zkconsumer", "any", "build")).__name__)
"""


def test_the_project_is_a_folder_of_the_path_in_which_spark_lists_modules() -> None:
    # The other kind is a finder, which imports modules and lists none. Spark lists them to find `pyspark_zkconsumer`.
    done = subprocess.run([sys.executable, "-c", KIND], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)
    assert done.stdout.split() == ["_StaticPth"], done.stderr
