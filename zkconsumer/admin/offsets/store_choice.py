"""Chooses the stores in which offsets of a group are changed: ZooKeeper, Kafka or both. Pure."""

from __future__ import annotations

from typing import Final

from zkconsumer.admin.values import OffsetsNotSet

ZOOKEEPER: Final = "zookeeper"
KAFKA: Final = "kafka"
BOTH: Final = "both"
STORES: Final = (ZOOKEEPER, KAFKA, BOTH)
"""The values of `store=` and `--store`."""


def check_store(store: str | None) -> None:
    """Raise if it is no store.

    Raises:
        ValueError: Names the valid stores.
    """
    if store is not None and store not in STORES:
        raise ValueError(f"store is {store!r}; it must be one of {', '.join(STORES)}, or None for the stores in use")


def chosen_stores(
    store: str | None, group: str, in_zookeeper: bool, in_kafka: bool, unknown: str | None
) -> tuple[str, ...]:
    """Return the stores to be changed, Kafka first: the newer offset is never in ZooKeeper alone.

    Args:
        store: The one that was chosen; None: those in which the group has offsets, ZooKeeper if it has none.
        group: Its name, for the message of the error.
        in_zookeeper: The group has offsets there.
        in_kafka: The group has offsets there.
        unknown: Why it is not known whether it has offsets in Kafka, a clause.

    Raises:
        OffsetsNotSet: The offsets in Kafka are not known, and ZooKeeper alone was not chosen.
    """
    if unknown is not None and store != ZOOKEEPER:
        raise OffsetsNotSet(
            f"no offset was changed: the offsets of group {group!r} in Kafka are not known ({unknown})",
            "try again when its offset manager answers, or choose the store: zookeeper (store='zookeeper', --store "
            "zookeeper)",
        )
    if store is not None:
        return (KAFKA, ZOOKEEPER) if store == BOTH else (store,)
    stores = (*((KAFKA,) if in_kafka else ()), *((ZOOKEEPER,) if in_zookeeper else ()))
    return stores or (ZOOKEEPER,)
