"""Every error that the library raises is a `ZkConsumerError`, and names its remedy."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import zkconsumer
import zkconsumer_error
from rebalance.errors import AccessRefused, ConsumerIdInUse, NamespaceMissing, RefusedNode
from rebalance.zookeeper.port.requests import Fault
from simpleconsumer.errors import broker_error
from zkconsumer.cli.terminal import CliError, sentence_of
from zkconsumer.errors import ConfigError, ForkedConnector, MessageStreamsExist, Obstacle, ZooKeeperUnavailable

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("simpleconsumer.errors", "rebalance.errors", "zkconsumer.errors", "zkconsumer.spark.errors",
           "zkconsumer.spark.load.failures", "zkconsumer.testing.errors", "zkconsumer.admin.values",
           "zkconsumer.cli.terminal", "zkconsumer.polling.errors", "zkconsumer.mirror.errors")  # fmt: skip
NO_ERRORS = {
    "Interrupted", "BadRequest", "Refusal", "NoAnswer", "TopicExists", "NothingYet", "_Fault", "RecordFault",
    "ScramRefused", "SaslRefused", "FencedFirst", "_NotFound",
}  # fmt: skip
"""Exceptions that one part of the code catches of another and that no caller sees."""


def test_the_root_imports_enum_alone() -> None:
    tree = ast.parse(Path(zkconsumer_error.__file__).read_text(encoding="utf-8"))
    imports = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports == ["import enum"]


def test_the_names_of_error_codes_are_one_table_with_their_meanings() -> None:
    codes = zkconsumer_error.ErrorCode
    assert {code for code in codes if broker_error(code).name.startswith("Code")} == {codes.ELECTION_NOT_NEEDED}
    assert f"{codes.UNKNOWN_TOPIC_OR_PARTITION}" == "3", "as texts and JSON have it"


@pytest.mark.parametrize("name", MODULES)
def test_each_error_has_that_root(name: str) -> None:
    module = importlib.import_module(name)
    own = [each for each in vars(module).values()
           if isinstance(each, type) and issubclass(each, Exception) and each.__module__ == name]  # fmt: skip
    assert own
    assert all(issubclass(each, zkconsumer_error.ZkConsumerError) for each in own)


def test_no_other_root_is_made() -> None:
    found = set()
    for package in ("simpleconsumer", "rebalance", "zkconsumer"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and "Exception" in {ast.unparse(base) for base in node.bases}:
                    found.add(node.name)
    assert found == NO_ERRORS


def test_it_is_exported_and_so_are_refusals() -> None:
    assert zkconsumer.ZkConsumerError is zkconsumer_error.ZkConsumerError
    assert issubclass(zkconsumer.AccessRefused, zkconsumer.RebalanceError)


@pytest.mark.parametrize(
    "error",
    [
        AccessRefused.of_node("read", "/consumers/g"),
        ConsumerIdInUse("/consumers/g/ids/c", 1),
        NamespaceMissing("/kafka"),
        RefusedNode("/consumers/g", Fault.NO_AUTH),
        ConfigError("fetch.min.bytes", -1, "an integer from 0 to 2147483647"),
        MessageStreamsExist(),
        ForkedConnector(1, 2),
        ZooKeeperUnavailable("zk1:2181", 6.0, [Obstacle("zk1:2181", " speaks TLS", "set zookeeper.use.ssl=true")]),
        CliError("topic 'clikcs' is not there", "did you mean 'clicks'?"),
    ],
)
def test_the_remedy_stands_by_itself_and_at_the_end_of_the_sentence(error: zkconsumer.ZkConsumerError) -> None:
    assert error.remedy
    assert str(error).endswith(f"; {error.remedy}")
    assert sentence_of(error) == str(error)
