"""A listener whose methods would never be called is refused when the connector is made, with the nearest name."""

from __future__ import annotations

import re
import threading
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector, ListenerRefused, RebalanceListener, ZkConsumerError

CONFIG = ConsumerConfig("zk:2181", "g")


class Misspelled:
    def on_partition_revoked(self, partitions: list[object]) -> None: ...


class OneOfTwoMisspelled:
    def on_partitions_assigned(self, positions: dict[object, int]) -> None: ...

    def on_partitions_revoke(self, partitions: list[object]) -> None: ...


class InheritsAndMisspells(RebalanceListener):
    def on_revoked(self, partitions: list[object]) -> None: ...


class InheritsAlone(RebalanceListener):
    def partitions_revoked(self, partitions: list[object]) -> None: ...


class Nothing:
    def partitions_revoked(self, partitions: list[object]) -> None: ...


class NoArgument:
    def on_partitions_revoked(self) -> None: ...


class TwoArguments:
    def on_partitions_lost(self, partitions: list[object], reason: str) -> None: ...


class Coroutine:
    async def on_partitions_assigned(self, positions: dict[object, int]) -> None: ...


class Awaitable:
    async def __call__(self, partitions: list[object]) -> None: ...


class CoroutineObject:
    on_partitions_revoked = Awaitable()


class ClassMethod(RebalanceListener):
    @classmethod
    def on_revoke(cls, partitions: list[object]) -> None: ...


class NoMethod:
    on_partitions_revoked = "committed"


class OfAnotherClient:
    def on_assign(self, consumer: object, partitions: list[object]) -> None: ...


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        (Misspelled(), "'on_partition_revoked', which is never called; did you mean 'on_partitions_revoked'?"),
        (OneOfTwoMisspelled(), "'on_partitions_revoke', which is never called; did you mean 'on_partitions_revoked'?"),
        (InheritsAndMisspells(), "'on_revoked', which is never called; did you mean 'on_partitions_revoked'?"),
        (
            InheritsAlone(),
            "InheritsAlone has none of the methods that are called; define one of on_partitions_revoked, ",
        ),
        (Nothing(), "Nothing has none of the methods that are called"),
        (object(), "object has none of the methods that are called"),
        (lambda partitions: None, "function has none of the methods that are called"),
        (RebalanceListener, "is the class RebalanceListener; give an object: RebalanceListener(...)"),
        (NoArgument(), "NoArgument.on_partitions_revoked, which does not take one argument"),
        (TwoArguments(), "TwoArguments.on_partitions_lost, which does not take one argument"),
        (Coroutine(), "Coroutine.on_partitions_assigned, a coroutine function; make it `def`"),
        (CoroutineObject(), "CoroutineObject.on_partitions_revoked, a coroutine function; make it `def`"),
        (ClassMethod(), "'on_revoke', which is never called"),
        (NoMethod(), "NoMethod.on_partitions_revoked, which is not a method"),
        (OfAnotherClient(), "'on_assign', which is never called"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_it_is_refused_with_what_to_do(listener: object, said: str) -> None:
    with pytest.raises(ListenerRefused, match=re.escape(said)) as refused:
        ConsumerConnector(CONFIG, listener)
    assert isinstance(refused.value, ZkConsumerError)
    assert isinstance(refused.value, TypeError)
    assert refused.value.remedy


class Derived(RebalanceListener):
    def on_partitions_lost(self, partitions: list[Any]) -> None: ...


class WithMore:
    def __init__(self) -> None:
        self.on_hold = threading.Event()  # no method

    def on_partitions_assigned(self, positions: dict[Any, int], *, slowly: bool = False) -> None: ...

    def onwards(self) -> None: ...

    @staticmethod
    def on_partitions_revoked(partitions: list[Any]) -> None: ...


class Set:
    def __init__(self) -> None:
        self.on_partitions_blocked = [].append


class WithStatistics(Derived):
    def on_statistics(self, statistics: object) -> None: ...


class WithProperty(Derived):
    @property
    def on_air(self) -> object:
        raise RuntimeError("not connected")


SPECIFIED = create_autospec(RebalanceListener, instance=True)


@pytest.mark.parametrize(
    "listener",
    [None, RebalanceListener(), Derived(), WithMore(), Set(), Mock(), WithStatistics(), WithProperty(), SPECIFIED],
)
def test_one_that_is_called_is_accepted(listener: object) -> None:
    ConsumerConnector(CONFIG, listener)
