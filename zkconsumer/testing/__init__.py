"""A test kit: embedded and real clusters, Java members, faults, and a checker of histories.

| part | what it offers |
|---|---|
| `ZooKeeperServer`, `ZooKeeperEnsemble` | real ZooKeeper in JVM child processes: kill, pause, wipe, end any session |
| `KafkaCluster` | real Kafka brokers of any version from 0.7.2 to 4.3.1: topics, leaders, kill, pause |
| `EmbeddedCluster`, `Fault` | brokers of Kafka 0.8.2 or 0.7.2 in this process, up in milliseconds, faults on demand |
| `Cluster` | the type of both: a test that is written for it runs on either |
| `JavaMember` | Kafka's own Java high-level consumer as a member of a group |
| `MemberProcess` | a consumer of ours in a process of its own, which records what it does |
| `GroupMember`, `MemberKind` | the types of both, and of what makes them: such a test runs with either |
| `ZooKeeperLogin` | how a cluster, its brokers and its members authenticate to ZooKeeper: SASL, digest, TLS |
| `BrokerSecurity` | listeners of a `KafkaCluster` with TLS and SASL, and their certificates |
| `ClosedNodes` | nodes of ZooKeeper that no other session may read, until they are opened again |
| `TcpProxy`, `Hold` | stalled, broken, slow links; changed responses; ZooKeeper requests counted, or held back |
| `cluster.produce`, `Produced` | writes messages with keys, tombstones and codecs; where each message went |
| `load`, `SteadyLoad`, `LastingLoad` | fill topics, at once or at a steady rate, and record what was acknowledged |
| `check_history`, `figures_of` | was anything lost, skipped, repeated, owned twice? |
| `zookeeper_trace` | the requests and replies of one ZooKeeper client, line by line |
| `pytest_plugin` | the servers as fixtures, see docs/TESTING.md |
| `containers` | ZooKeeper and Kafka 0.8.2.2 in Docker |

Every child process ends with the Python process that started it, however that one ends. A missing tool
(Java, jars) is named by the errors `JavaMissing` and `MavenMissing`, with what to install.
"""

from typing import TYPE_CHECKING

from simpleconsumer.lazy_names import lazy_names

if TYPE_CHECKING:
    from zkconsumer.testing.cluster import Cluster
    from zkconsumer.testing.embedded.broker import EmbeddedBroker
    from zkconsumer.testing.embedded.cluster import EmbeddedCluster
    from zkconsumer.testing.embedded.faults import Fault
    from zkconsumer.testing.errors import (
        JavaMissing,
        KitError,
        MavenMissing,
        NoSession,
        NotSupported,
        StartFailed,
        WaitTimeout,
    )
    from zkconsumer.testing.history.checks import Figures, Finding, Limits, check_history, figures_of
    from zkconsumer.testing.history.events import Event
    from zkconsumer.testing.kafka.cluster import KafkaCluster
    from zkconsumer.testing.kafka.known_versions import kafka_versions
    from zkconsumer.testing.kafka.security import BrokerSecurity
    from zkconsumer.testing.loads import LastingLoad, SteadyLoad, load
    from zkconsumer.testing.members.java_member import JavaMember
    from zkconsumer.testing.members.member_process import MemberProcess
    from zkconsumer.testing.members.recorded_member import Delivered, GroupMember, MemberKind
    from zkconsumer.testing.producing import Produced
    from zkconsumer.testing.proxy.tcp_proxy import TcpProxy
    from zkconsumer.testing.proxy.zookeeper_trace import Hold
    from zkconsumer.testing.waiting import Deadline, wait_until
    from zkconsumer.testing.zookeeper.client import ClosedNodes, NodeRefused
    from zkconsumer.testing.zookeeper.group_watch import GroupWatch
    from zkconsumer.testing.zookeeper.login import ZooKeeperLogin
    from zkconsumer.testing.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer, end_session

__all__ = [
    "BrokerSecurity",
    "ClosedNodes",
    "Cluster",
    "Deadline",
    "Delivered",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "Event",
    "Fault",
    "Figures",
    "Finding",
    "GroupMember",
    "GroupWatch",
    "Hold",
    "JavaMember",
    "JavaMissing",
    "KafkaCluster",
    "KitError",
    "LastingLoad",
    "Limits",
    "MavenMissing",
    "MemberKind",
    "MemberProcess",
    "NoSession",
    "NodeRefused",
    "NotSupported",
    "Produced",
    "StartFailed",
    "SteadyLoad",
    "TcpProxy",
    "WaitTimeout",
    "ZooKeeperEnsemble",
    "ZooKeeperLogin",
    "ZooKeeperServer",
    "check_history",
    "end_session",
    "figures_of",
    "kafka_versions",
    "load",
    "wait_until",
]

if not TYPE_CHECKING:  # mypy would take every name for one of the package
    __getattr__ = lazy_names(
        __name__,
        {
            "zkconsumer.testing.errors": __all__,
            "zkconsumer.testing.cluster": ["Cluster"],
            "zkconsumer.testing.embedded.broker": ["EmbeddedBroker"],
            "zkconsumer.testing.embedded.cluster": ["EmbeddedCluster"],
            "zkconsumer.testing.embedded.faults": ["Fault"],
            "zkconsumer.testing.history.checks": ["Finding", "Limits", "check_history", "Figures", "figures_of"],
            "zkconsumer.testing.history.events": ["Event"],
            "zkconsumer.testing.kafka.cluster": ["KafkaCluster"],
            "zkconsumer.testing.kafka.known_versions": ["kafka_versions"],
            "zkconsumer.testing.kafka.security": ["BrokerSecurity"],
            "zkconsumer.testing.loads": ["LastingLoad", "SteadyLoad", "load"],
            "zkconsumer.testing.members.recorded_member": ["Delivered", "GroupMember", "MemberKind"],
            "zkconsumer.testing.members.java_member": ["JavaMember"],
            "zkconsumer.testing.members.member_process": ["MemberProcess"],
            "zkconsumer.testing.producing": ["Produced"],
            "zkconsumer.testing.proxy.tcp_proxy": ["TcpProxy"],
            "zkconsumer.testing.proxy.zookeeper_trace": ["Hold"],
            "zkconsumer.testing.waiting": ["Deadline", "wait_until"],
            "zkconsumer.testing.zookeeper.client": ["NodeRefused", "ClosedNodes"],
            "zkconsumer.testing.zookeeper.group_watch": ["GroupWatch"],
            "zkconsumer.testing.zookeeper.login": ["ZooKeeperLogin"],
            "zkconsumer.testing.zookeeper.server": ["ZooKeeperEnsemble", "ZooKeeperServer", "end_session"],
        },
    )


def __dir__() -> list[str]:
    """All names, also ones that are not imported yet."""
    return sorted({*globals(), *__all__})
