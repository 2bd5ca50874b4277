"""Whether topics are still those that a run was planned for.

Offsets of a topic that is deleted and created anew begin at 0 again. What was read behind that moment has the offsets
that were asked for and the messages of another log, which the next run reads from its beginning, so that they would be
there twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rebalance import znodes
from rebalance.requests import Exists, ZooKeeperPort
from zkconsumer.cluster.zookeeper_reads import READ_TIMEOUT_S, read_all
from zkconsumer.spark.load.errors import AuditFailed

__all__ = ["refuse_topics_created_anew"]


def refuse_topics_created_anew(port: ZooKeeperPort, births: Mapping[str, int], topics: Collection[str]) -> None:
    """Raise if one of these topics is another one of its name by now; one that is gone had been read before.

    Args:
        births: topic -> the transaction that created it, as it was before anything was read.

    Raises:
        AuditFailed: names the topics.
        ZooKeeperSilent: no answer in time.
    """
    names = sorted(topics)
    nodes = read_all(port, [Exists(znodes.topic_path(topic)) for topic in names], READ_TIMEOUT_S)
    anew = [topic for topic, stat in zip(names, nodes, strict=True) if stat is not None and stat.czxid != births[topic]]
    if anew:
        raise AuditFailed(f"nothing was published: {', '.join(map(repr, anew))} was deleted and created anew while it "
                          "was read; start the load again")
