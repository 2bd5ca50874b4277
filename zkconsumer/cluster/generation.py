"""Finds out which generation of Kafka a cluster is of, and whether a group belongs to it, before a member registers.

Rules, and which failure each prevents:
- Registered brokers decide; where there are none, topics do, then the members of the group. A member that registers in
  the format of the other generation fails the rebalance of every Java member of its group.
- Brokers of both generations under one path are refused, unless `kafka.generation` says which of them is meant.
- A group with a live member of the other generation is refused: the two can never agree who owns what.

Source: reference formats in `rebalance.zookeeper.znodes` and `rebalance.zookeeper.znodes_07`; docs/COMPATIBILITY.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rebalance.errors import GroupRefused, Kafka07Node, Kafka08Node, RefusedNode, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetChildren, GetData, ZooKeeperPort
from rebalance.zookeeper.znodes_07 import GENERATION_07, GENERATION_08, Generation, other_than
from simpleconsumer.types import Broker
from zkconsumer.cluster.zookeeper_connection import read_each
from zkconsumer.errors import ConfigError

AUTO: Final = "auto"
"""The value of `kafka.generation` that leaves the choice to what is found in ZooKeeper."""
_MOST_TOPICS: Final = 100
"""Topics that are looked at when no broker is registered: all of them are of one generation."""
_DIALECTS: Final[Mapping[str, Generation]] = {"kafka07": GENERATION_07}


def generation_named(name: str) -> Generation | None:
    """Return the generation that `kafka.generation` names, None for `auto`."""
    return {"0.7": GENERATION_07, "0.8": GENERATION_08}.get(name)


def generation_of_brokers(brokers: Sequence[Broker]) -> Generation | None:
    """Return the generation of all these brokers; None if there are none, or they differ."""
    found = set(map(_of_registered, brokers))
    return found.pop() if len(found) == 1 else None


def refuse_other_brokers(forced: str, brokers: Sequence[Broker]) -> None:
    """Raise if all brokers are of another generation than `kafka.generation` says.

    Args:
        forced: The value of `kafka.generation`.
        brokers: The registered brokers.

    Raises:
        ConfigError: Names one of them.
    """
    wanted = generation_named(forced)
    if wanted is None or not brokers or wanted in map(_of_registered, brokers):
        return
    other = other_than(wanted)
    allowed = (
        f"{other.name} or left out, because {_named([each.id for each in brokers])} registered in the format of "
        f"Kafka {_shown(other)}; for another cluster, give its chroot in zookeeper.connect"
    )
    raise ConfigError("kafka.generation", forced, allowed)


def _of_registered(broker: Broker) -> Generation:
    return _DIALECTS.get(broker.generation, GENERATION_08)


def find_generation(
    port: ZooKeeperPort, group: str, forced: str, brokers: Sequence[Broker], timeout_s: float
) -> Generation:
    """Return the generation with which a member of the group has to work.

    Args:
        port: A started ZooKeeper port.
        forced: The value of `kafka.generation`.
        brokers: The registered brokers.
        timeout_s: For each of the reads.

    Raises:
        GroupRefused: Brokers of both generations, brokers of another one than `kafka.generation` says, or a group whose
            members are of the other one.
        ZooKeeperSilent: No answer in time.
    """
    wanted = generation_named(forced)
    _refuse_other_brokers(group, wanted, brokers)
    found = wanted or generation_of_brokers(brokers) or _of_topics(port, timeout_s)
    registrations = _registrations(port, group, timeout_s)
    found = found or _of_members(registrations) or GENERATION_08
    _refuse_other_members(group, found, registrations, bool(brokers) or wanted is not None)
    return found


def generation_of_cluster(port: ZooKeeperPort, registrations: Mapping[str, bytes], timeout_s: float) -> Generation:
    """Return the generation of a cluster for administration, which refuses nothing: it must show faults.

    Registered brokers decide if all are of one generation; else the topics do, then the members of a group.

    Args:
        port: A started ZooKeeper port.
        registrations: Path -> data of the registrations of a group.
        timeout_s: For each of the reads.

    Raises:
        ZooKeeperSilent: No answer in time.
    """
    [listing] = read_each(port, [GetChildren(znodes.BROKERS)], timeout_s)
    names = listing[0] if isinstance(listing, tuple) else []
    paths = [znodes.broker_path(each) for each in znodes.broker_ids(names)]
    values = read_each(port, [GetData(path) for path in paths], timeout_s)
    found = {_of_broker(value[0]) for value in values if isinstance(value, tuple) and value[0]}
    of_brokers = found.pop() if len(found) == 1 else None
    return of_brokers or _of_topics(port, timeout_s) or _of_members(registrations) or GENERATION_08


def _of_broker(data: bytes) -> Generation:
    return GENERATION_08 if data.lstrip().startswith(b"{") else GENERATION_07


def _refuse_other_brokers(group: str, wanted: Generation | None, brokers: Sequence[Broker]) -> None:
    by_generation: dict[Generation, list[int]] = {}
    for broker in brokers:
        by_generation.setdefault(_of_registered(broker), []).append(broker.id)
    if wanted is not None and by_generation and wanted not in by_generation:
        [ids] = by_generation.values()
        raise GroupRefused(
            group,
            f"kafka.generation is {wanted.name}, but {_named(ids)} registered in the format of "
            f"Kafka {_shown(other_than(wanted))}; leave kafka.generation out, or give the "
            "chroot of another cluster in zookeeper.connect",
        )
    if wanted is None and len(by_generation) > 1:
        raise GroupRefused(
            group,
            f"{_named(by_generation[GENERATION_07])} registered in the format of Kafka 0.7, and "
            f"{_named(by_generation[GENERATION_08])} in the format of Kafka 0.8; set "
            "kafka.generation to 0.7 or 0.8 to choose one",
        )


def _named(ids: Sequence[int]) -> str:
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {', '.join(map(str, sorted(ids)))} are"


def _shown(generation: Generation) -> str:
    return "0.7" if generation is GENERATION_07 else "0.8 or later"


def _of_topics(port: ZooKeeperPort, timeout_s: float) -> Generation | None:
    """Return the generation that the topics show: 0.8 keeps data in their nodes, 0.7 has brokers below them."""
    [listing] = read_each(port, [GetChildren(znodes.TOPICS)], timeout_s)
    if listing is None or isinstance(listing, RefusedNode):
        return None
    paths = [znodes.topic_path(topic) for topic in sorted(listing[0])[:_MOST_TOPICS]]
    values = read_each(port, [GetData(path) for path in paths], timeout_s)
    known = [value for value in values if value is not None and not isinstance(value, RefusedNode)]
    if not known:
        return None
    return GENERATION_08 if any(data for data, _ in known) else GENERATION_07


def _registrations(port: ZooKeeperPort, group: str, timeout_s: float) -> dict[str, bytes]:
    """Return path -> data of the registrations of a group that can be read."""
    [listing] = read_each(port, [GetChildren(znodes.ids_path(group))], timeout_s)
    if listing is None or isinstance(listing, RefusedNode):
        return {}
    paths = [znodes.registration_path(group, name) for name in sorted(listing[0])]
    values = read_each(port, [GetData(path) for path in paths], timeout_s)
    return {
        path: value[0]
        for path, value in zip(paths, values, strict=True)
        if value is not None and not isinstance(value, RefusedNode)
    }


def _of_members(registrations: Mapping[str, bytes]) -> Generation | None:
    for path, data in registrations.items():
        for generation in (GENERATION_08, GENERATION_07):
            try:
                generation.parse_registration(data, path)
            except UnreadableNode:
                continue
            return generation
    return None


def _refuse_other_members(
    group: str, generation: Generation, registrations: Mapping[str, bytes], is_certain: bool
) -> None:
    for path, data in registrations.items():
        try:
            generation.parse_registration(data, path)
        except (Kafka07Node, Kafka08Node) as error:
            why = "" if is_certain else " (no broker is registered; set kafka.generation to the right one)"
            raise GroupRefused(
                group,
                f"its member {path.rpartition('/')[2]} is registered in the format of Kafka "
                f"{_shown(other_than(generation))}, but this cluster is of Kafka "
                f"{_shown(generation)}{why}; members of both cannot form one group: use another group.id, or stop that "
                f"member ({error})",
            ) from error
        except UnreadableNode:
            continue  # the group is read again, and names it
