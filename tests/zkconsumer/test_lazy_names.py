"""The public packages load a name when it is first used, and it is the one that type checkers see."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from simpleconsumer.lazy_names import lazy_names

PACKAGES = ("zkconsumer", "zkconsumer.config", "zkconsumer.spark", "zkconsumer.testing", "simpleconsumer")
HEAVY = ("kazoo", "pyspark", "pyarrow", "rebalance", "zkconsumer.cluster", "simpleconsumer.types")


def in_a_fresh_python(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def typed_names(package: str) -> dict[str, str]:
    """Name -> module it is imported from in the block that type checkers alone read."""
    text = Path(str(importlib.import_module(package).__file__)).read_text(encoding="utf-8")
    [block] = [
        node for node in ast.parse(text).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {alias.name: str(node.module) for node in imports for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_what_type_checkers_take_it_for(package: str) -> None:
    made, typed = importlib.import_module(package), typed_names(package)
    assert typed.keys() == set(made.__all__) - {"__version__"}
    assert set(made.__all__) <= set(dir(made))
    for name, module in typed.items():
        vars(made).pop(name, None)  # as before its first use
        assert getattr(made, name) is getattr(importlib.import_module(module), name)
        assert vars(made)[name] is getattr(made, name)  # found without a look-up from then on


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_is_that_of_a_module_which_would_take_its_place(package: str) -> None:
    for name in typed_names(package):
        assert importlib.util.find_spec(f"{package}.{name}") is None


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_imported_loads_hardly_anything(package: str) -> None:
    loaded = in_a_fresh_python(f"import sys, {package}; print(*sys.modules)").split()
    assert package in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    assert len([name for name in loaded if name.startswith(("zkconsumer", "simpleconsumer"))]) < 6


def test_modules_for_applications_need_no_import_of_their_own() -> None:
    program = "import zkconsumer; print(zkconsumer.errors.ConfigError, zkconsumer.producer.SyncProducer.__name__)"
    assert in_a_fresh_python(program) == "<class 'zkconsumer.errors.ConfigError'> SyncProducer\n"


def test_a_star_brings_every_name() -> None:
    program = "import zkconsumer; from zkconsumer import *; print(set(zkconsumer.__all__) <= set(dir()))"
    assert in_a_fresh_python(program) == "True\n"


def test_a_name_that_does_not_exist_is_the_usual_error() -> None:
    look_up = lazy_names("zkconsumer", {"zkconsumer.errors": ["ConfigError"]})
    with pytest.raises(AttributeError, match=r"^module 'zkconsumer' has no attribute 'Consummer'$"):
        look_up("Consummer")
    with pytest.raises(ImportError, match="cannot import name 'Consummer' from 'zkconsumer'"):
        exec("from zkconsumer import Consummer")


def test_of_a_name_that_is_there_twice_the_last_module_counts() -> None:
    look_up = lazy_names("zkconsumer", {"zkconsumer.errors": ["Message"], "simpleconsumer.types": ["Message"]})
    assert look_up("Message").__module__ == "simpleconsumer.types"


@pytest.mark.parametrize("name", ["KafkaConsumer", "ConsumerConnector", "read_topic", "Producer"])
def test_a_client_loads_only_what_every_program_needs_that_uses_it(name: str) -> None:
    loaded = in_a_fresh_python(f"import sys; from zkconsumer import {name}; print(*sys.modules)").split()
    elsewhere = ("kazoo", "numpy", "pyarrow", "pyspark", "ssl", "hashlib", "zkconsumer.admin",
                 "zkconsumer.member.zookeeper_coordination", "rebalance.brokers.coordinator")  # fmt: skip
    assert [each for each in loaded if each.startswith(elsewhere)] == []


def test_the_parts_that_poll_are_loaded_for_the_first_consumer() -> None:
    loaded = in_a_fresh_python("import sys; from zkconsumer import KafkaConsumer; print(*sys.modules)").split()
    rooms = ("zkconsumer.cluster", "zkconsumer.fetching", "zkconsumer.member", "zkconsumer.offsets", "cramjam")
    assert [each for each in loaded if each.startswith(rooms)] == []


def test_importing_the_consumer_loads_nothing_that_only_some_programs_need() -> None:
    shown = "import sys; from zkconsumer import KafkaConsumer, ConsumerConnector; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert loaded & {"asyncio", "click", "crcmod", "kazoo", "numpy", "pyarrow", "pyspark", "rich", "ssl"} == set()
