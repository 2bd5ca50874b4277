"""`help()`, `dir()` and completions show what is for users, and every public attribute is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import textwrap
from types import ModuleType
from typing import get_type_hints

import pytest

import zkconsumer
from tests.fetching.feeding import Feed
from zkconsumer.aio import AsyncConsumerConnector, AsyncKafkaStream
from zkconsumer.config import ConsumerSettings, ProducerSettings
from zkconsumer.config.typed.typed_settings import KafkaConsumerSettings

MODULES = ["zkconsumer", "zkconsumer.aio", "zkconsumer.config", "zkconsumer.prometheus", "simpleconsumer"]
PUBLIC = {
    f"{name}.{each}": getattr(module, each)
    for name in MODULES
    for module in [importlib.import_module(name)]
    for each in module.__all__
    if isinstance(getattr(module, each), type)
}
SETTINGS = set().union(*(get_type_hints(each) for each in (ConsumerSettings, ProducerSettings, KafkaConsumerSettings)))
"""docs/CONFIGURATION.md has them."""
INTERNAL = {  # names of this package's machinery that once showed in help()
    "end", "end_after_hand", "fail", "failures", "lease", "on_fork", "reader", "ready", "settle", "wake",
}  # fmt: skip


def own_classes(kind: type) -> list[type]:
    """The class and those of this project that it inherits from."""
    return [each for each in kind.__mro__ if re.match(r"(zkconsumer|simpleconsumer|rebalance)", each.__module__)]


def public_attributes(kind: type) -> set[str]:
    """Methods, properties, fields, and what constructors set on `self`."""
    found: set[str] = set()
    for each in own_classes(kind):
        found |= vars(each).keys() | inspect.get_annotations(each).keys()
        constructor = vars(each).get("__init__")
        if inspect.isfunction(constructor) and "__dataclass_fields__" not in vars(each):
            tree = ast.parse(textwrap.dedent(inspect.getsource(constructor)))
            found |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name) and node.value.id == "self"
            }  # fmt: skip
    return {name for name in found if not name.startswith("_")} - {"args"} - SETTINGS


def is_documented(kind: type, name: str) -> bool:
    attribute = inspect.getattr_static(kind, name, None)
    if callable(attribute) or isinstance(attribute, property | classmethod | staticmethod):
        return bool(inspect.getdoc(getattr(kind, name)))
    text = "\n".join(each.__doc__ or "" for each in own_classes(kind))
    return re.search(rf"(?m)^ *{name}(, \w+)*: |^ *(\w+, )+{name}(, \w+)*: ", text) is not None


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_attribute_is_documented(name: str) -> None:
    kind = PUBLIC[name]
    assert inspect.getdoc(kind), name
    missing = sorted(each for each in public_attributes(kind) if not is_documented(kind, each))
    assert not missing, f"{name} has attributes without a docstring: {missing}"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_no_machinery_shows(name: str) -> None:
    assert not public_attributes(PUBLIC[name]) & INTERNAL
    shown = pydoc.render_doc(PUBLIC[name], renderer=pydoc.plaintext)
    assert not set(re.findall(r"(?m)^ \|  (\w+)\(", shown)) & INTERNAL


def test_completions_of_a_stream() -> None:
    assert {name for name in dir(Feed().stream) if not name.startswith("_")} == {"batches", "handed", "thread_id"}


def test_completions_for_asyncio() -> None:
    connector = AsyncConsumerConnector(zkconsumer.ConsumerConfig("127.0.0.1:1", "g"))
    assert {name for name in dir(connector) if not name.startswith("_")} == {
        "commit_offsets", "config", "consumer_id", "create_message_streams", "create_message_streams_by_filter",
        "pause", "paused", "resume", "shutdown", "statistics", "status",
    }  # fmt: skip
    assert {name for name in dir(AsyncKafkaStream) if not name.startswith("_")} == {"batches", "handed", "thread_id"}


def test_completions_of_a_connector() -> None:
    connector = zkconsumer.ConsumerConnector(zkconsumer.ConsumerConfig("127.0.0.1:1", "g"))
    assert {name for name in dir(connector) if not name.startswith("_")} == {
        "commitOffsets", "commit_offsets", "config", "consumer_id", "createMessageStreams",
        "createMessageStreamsByFilter", "create_message_streams", "create_message_streams_by_filter", "pause", "paused",
        "resume", "shutdown", "statistics", "status",
    }  # fmt: skip


def test_the_package_lists_its_public_names() -> None:
    importlib.import_module("zkconsumer.config")
    shown = set(dir(zkconsumer))
    assert set(zkconsumer.__all__) <= shown
    modules = {name for name in shown if isinstance(getattr(zkconsumer, name), ModuleType)}
    for name in modules:
        assert f"zkconsumer.{name}" in (zkconsumer.__doc__ or ""), f"the docstring does not name zkconsumer.{name}"
    assert not {"backoff", "fetching", "member", "streams", "wakeup"} & shown
