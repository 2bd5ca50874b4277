"""The table of a consumer's settings: names, types, defaults, ranges, meanings. Pure.

`ConsumerConfig` has one attribute for each row, and docs/CONFIGURATION.md is printed from it.

Source: kafka/consumer/ConsumerConfig.scala (0.7.2, 0.8.2.2, 0.9.0.1); keys of our own are marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rebalance.subscription import check_any_group, check_client_id, check_group, client_id_of
from simpleconsumer.types import MAX_INT64
from zkconsumer.config.tables.foreign_names import hint_for_name
from zkconsumer.config.tables.kinds import (
    INT32_MAX,
    OPEN_ACL,
    PATH,
    AclList,
    AssignorChoice,
    AuthList,
    Boolean,
    Choice,
    Integer,
    Text,
)
from zkconsumer.config.tables.producer_kinds import BrokerList
from zkconsumer.config.tables.security_keys import SECURITY_KEYS
from zkconsumer.config.tables.setting_table import Key, SettingTable
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address

READ_COMMITTED: Final = "read_committed"
"""The value of `isolation.level` that leaves out messages of aborted transactions."""
_MIB = 1024 * 1024


def _as(name: str) -> dict[str, Any]:
    """Return the fields of a key whose default is the value of another."""
    return {"default": None, "derive": lambda settings: settings[name], "default_text": f"as `{name}`"}


# fmt: off
_CONNECTION = (
    Key("zookeeper.connect", Text("host:port,host:port/chroot", parse_zookeeper_address), None,
        "ZooKeeper's servers, and after the last server the chroot of the cluster, once.",
        name_07="zk.connect", required=True, unless="bootstrap.servers"),
    Key("bootstrap.servers", BrokerList("host:port, or several separated by commas", has_ids=False), None,
        "Some brokers of the cluster, through which the others are found; instead of `zookeeper.connect`. The "
        "brokers then coordinate the group.",
        default_text="none"),
    Key("group.id", Text("1 to 255 of [a-zA-Z0-9._-], not '.' or '..'", check_any_group), None,
        "Name of the consumer group; any text if brokers coordinate it.", name_07="groupid", required=True),
    Key("consumer.id", Text("1 to 255 of [a-zA-Z0-9._-], not '.' or '..'", check_group), None,
        "Fixed name of this consumer in the group. Two live consumers must not share a name.",
        name_07="consumerid", default_text="generated"),
    Key("client.id", Text("up to 255 of [a-zA-Z0-9._-]", check_client_id),
        meaning="Name under which requests are sent to brokers.",
        default=None, derive=lambda settings: client_id_of(settings["group.id"] or ""), default_text="as `group.id`"),
    Key("zookeeper.session.timeout.ms", Integer(1), 6000,
        "The requested ZooKeeper session time-out; if the server grants another time-out, that one counts.",
        name_07="zk.sessiontimeout.ms"),
    Key("zookeeper.connection.timeout.ms", Integer(1),
        meaning="Longest wait for the first connection to ZooKeeper.",
        name_07="zk.connectiontimeout.ms", **_as("zookeeper.session.timeout.ms")),
    Key("zookeeper.sync.time.ms", Integer(0), 2000,
        "How much a ZooKeeper follower may lag; only used as the default of `rebalance.backoff.ms`.",
        name_07="zk.synctime.ms"),
)
# fmt: on

# fmt: off
_FETCHING = (
    Key("auto.offset.reset", Choice(("smallest", "largest")), "largest",
        "Where to start without a valid stored offset.", name_07="autooffset.reset", default_07="smallest"),
    Key("fetch.message.max.bytes", Integer(1), _MIB,
        "Largest number of bytes that one request fetches of a partition; a larger message is fetched by itself.",
        name_07="fetch.size"),
    Key("fetch.min.bytes", Integer(0), 1, "A broker waits until it has this many bytes before it answers."),
    Key("fetch.wait.max.ms", Integer(0), 100, "Longest wait of a broker for `fetch.min.bytes`."),
    Key("socket.timeout.ms", Integer(1), 30_000,
        "Longest wait for a broker's answer; at least `fetch.wait.max.ms`."),
    Key("socket.receive.buffer.bytes", Integer(-1), -1,
        "Receive buffer of a broker connection; -1 lets the system choose, and grow it (Kafka's 65536 is slower).",
        name_07="socket.buffersize"),
    Key("num.consumer.fetchers", Integer(1), 1, "Number of connections to each broker for fetches."),
    Key("queued.max.message.chunks", Integer(1), 2, "Largest number of fetched chunks that wait in one stream.",
        name_07="queuedchunks.max", default_07=10),
    Key("refresh.leader.backoff.ms", Integer(0), 200, "Wait before the leader of a partition is looked up again."),
    Key("consumer.timeout.ms", Integer(-INT32_MAX - 1), -1,
        "How long a stream waits for a message before it raises `ConsumerTimeout`; negative: no limit."),
    Key("client.rack", Text("up to 255 characters"), None,
        "The rack of this consumer. From Kafka 2.4 on, brokers may name a replica in this rack; the consumer then "
        "fetches from it instead of the leader.", default_text="none"),
    Key("exclude.internal.topics", Boolean(), True, "Filters never match `__consumer_offsets`."),
)
# fmt: on


def _intent(settings: Mapping[str, Any]) -> str:
    """Return what Java members do: with dual commit they take the larger offset, else that of their own store."""
    storage = str(settings["offsets.storage"])
    return "max" if storage == "kafka" and settings["dual.commit.enabled"] else storage


# fmt: off
_COMMITTING = (
    Key("auto.commit.enable", Boolean(), True, "Commit the offsets of done messages every `auto.commit.interval.ms`.",
        name_07="autocommit.enable"),
    Key("auto.commit.interval.ms", Integer(1), 60_000, "Time between two automatic commits.",
        name_07="autocommit.interval.ms", default_07=10_000),
    Key("offsets.storage", Choice(("zookeeper", "kafka"), any_case=True), "zookeeper",
        "Where offsets are kept."),
    Key("dual.commit.enabled", Boolean(), None, "With `offsets.storage=kafka`, commit to ZooKeeper as well.",
        derive=lambda settings: settings["offsets.storage"] == "kafka",
        default_text="`true` if `offsets.storage` is `kafka`"),
    Key("offsets.intent", Choice(("max", "zookeeper", "kafka", "refuse")), None,
        "Which offset a partition starts from if ZooKeeper and Kafka differ; `refuse` does not start it.",
        derive=_intent,
        default_text="`max` with dual commit, else that of `offsets.storage`", section="own"),
    Key("offsets.channel.backoff.ms", Integer(0), 1000, "Wait before another request to the offset coordinator."),
    Key("offsets.channel.socket.timeout.ms", Integer(1), 10_000,
        "Longest wait for the offset coordinator's answer."),
    Key("offsets.commit.max.retries", Integer(0), 5, "Number of retries of a failed offset commit to Kafka."),
)
# fmt: on

# fmt: off
_REBALANCING = (
    Key("partition.assignment.strategy", AssignorChoice(), "range",
        "How partitions are assigned. All members of a group in ZooKeeper must use the same strategy, `range` or "
        "`roundrobin`. The members of a group of brokers need one strategy in common, and use the one that most of "
        "them prefer."),
    Key("rebalance.max.retries", Integer(1), 4,
        "After this many waits for one partition the listener is notified and a line is logged; the wait continues.",
        name_07="rebalance.retries.max"),
    Key("rebalance.backoff.ms", Integer(0), meaning="Wait between two attempts of a rebalance.",
        **_as("zookeeper.sync.time.ms")),
)
# fmt: on

# fmt: off
_BROKER_GROUPS = (
    Key("group.coordination", Choice(("auto", "zookeeper", "brokers")), "auto",
        "Who coordinates the group. `auto`: ZooKeeper if `zookeeper.connect` is given, otherwise the brokers (Kafka "
        "0.9 and later).", section="brokers"),
    Key("session.timeout.ms", Integer(1), 10_000,
        "The coordinator removes a member that sends no heartbeat for this time. Brokers allow 6000 to 30000 before "
        "Kafka 0.10.1, and up to 300000 or 1800000 later.", section="brokers"),
    Key("heartbeat.interval.ms", Integer(1), 3000, "Time between two heartbeats; at most half of "
        "`session.timeout.ms`.", section="brokers"),
    Key("rebalance.timeout.ms", Integer(1), 60_000,
        "How long the other members wait for this member in a rebalance. In this time it finishes and commits the "
        "messages in hand. Before Kafka 0.10.1 it is `session.timeout.ms`.", section="brokers"),
    Key("group.instance.id", Text("1 to 255 of [a-zA-Z0-9._-], not '.' or '..'", check_group), None,
        "Makes this a static member (Kafka 2.3 and later): it keeps its partitions if it returns within "
        "`session.timeout.ms`, and does not leave the group at the end.", default_text="none", section="brokers"),
    Key("metadata.max.age.ms", Integer(1), 30_000,
        "How often topics and partitions are read, to find new ones. In ZooKeeper they are watched.",
        section="brokers"),
)
# fmt: on

# fmt: off
_KAFKA_07 = (
    Key("fetcher.backoff.ms", Integer(0), 1000, "Kafka 0.7: longest pause after fetches that returned nothing.",
        section="0.7"),
    Key("shallowiterator.enable", Boolean(), False,
                                          "Deliver compressed entries without decompressing them.", section="0.7"),
)
# fmt: on

# fmt: off
_OWN = (
    Key("rebalance.drain.timeout.ms", Integer(0), 3000,
        "Longest wait for the message in hand when a partition is revoked.", section="own"),
    Key("rebalance.quiet.ms", Integer(0), 100,
        "Wait between a change of the group and the claims, with jitter.", section="own"),
    Key("rebalance.quiet.max.ms", Integer(0), 1500, "Longest wait of this kind while the group keeps changing.",
        section="own"),
    Key("queued.max.bytes", Integer(1, MAX_INT64), 64 * _MIB,
        "Largest number of fetched bytes that wait in all streams of a connector. Half of it is reserved in equal "
        "shares.",
        section="own"),
    Key("decoded.max.bytes", Integer(1, MAX_INT64), 64 * _MIB,
        "Largest size of one compressed message set after decompression.", section="own"),
    Key("isolation.level", Choice(("read_uncommitted", READ_COMMITTED)), "read_uncommitted",
        "`read_committed` leaves out messages of aborted transactions, and reads up to the first open transaction "
        "(brokers of Kafka 0.11 and later; older brokers have no transactions).", section="own"),
    Key("on.message.error", Choice(("raise", "skip", "stop")), "raise",
        "How a stream handles a message that cannot be decoded.", section="own"),
    Key("roundrobin.order", Choice(("auto", "0.8", "1.0")), "auto",
        "Order of roundrobin: `0.8` with Java members of 0.8.2 to 0.11, `1.0` with 1.0 and 1.1; `auto` learns it.",
        section="own"),
    Key("max.processing.interval.ms", Integer(1, off=True), None,
        "Leave the group if a stream has not asked for its next message for this time; join again when it asks.",
        default_text="`off`", section="own"),
    Key("statistics.interval.ms", Integer(1, off=True), None,
        "Time between two calls of `on_statistics`.", default_text="`off`", section="own"),
    Key("kafka.generation", Choice(("auto", "0.7", "0.8")), "auto",
        "The generation of the brokers; `auto` finds it in ZooKeeper. `0.7` sets the defaults of 0.7.",
        section="own"),
)
# fmt: on

# fmt: off
ZOOKEEPER_KEYS = (
    Key("zookeeper.auth", AuthList(), (), "Credentials added to the session.", default_text="none",
        secret=True, section="zookeeper"),
    Key("zookeeper.acl", AclList(), (OPEN_ACL,),
        "Access list of the nodes that the consumer creates: `open` like Java members, `creator` for only its own "
        "credentials, or entries such as `digest:user:hash:cdrwa`. All members of a group need the same value: "
        "members that may not read a registration claim nothing, and Java members own nothing.",
        default_text="`open`", section="zookeeper"),
    Key("zookeeper.use.ssl", Boolean(), False, "Use TLS to ZooKeeper (3.5 and later).", section="zookeeper"),
    Key("zookeeper.ssl.cafile", Text(PATH), None, "Certificates of the trusted authorities, PEM.",
        default_text="the system's", section="zookeeper"),
    Key("zookeeper.ssl.certfile", Text(PATH), None, "The client's certificate, PEM.", default_text="none",
        section="zookeeper"),
    Key("zookeeper.ssl.keyfile", Text(PATH), None, "The key of the client's certificate, PEM.",
        default_text="in the file of the certificate", section="zookeeper"),
    Key("zookeeper.ssl.keyfile.password", Text(), None, "Password of that key.", default_text="none",
        secret=True, section="zookeeper"),
    Key("zookeeper.ssl.verify.certs", Boolean(), True, "Reject a server whose certificate is not trusted.",
        section="zookeeper"),
    Key("zookeeper.ssl.check.hostname", Boolean(), False,
        "Reject a server whose certificate does not have the host name of `zookeeper.connect`.",
        section="zookeeper"),
    Key("zookeeper.sasl.mechanism", Choice(("DIGEST-MD5", "PLAIN", "GSSAPI")), None,
        "SASL mechanism. Needs the package `pure-sasl`; GSSAPI also needs `kerberos`.", default_text="none",
        section="zookeeper"),
    Key("zookeeper.sasl.username", Text(), None, "User name, for DIGEST-MD5 and PLAIN.", default_text="none",
        section="zookeeper"),
    Key("zookeeper.sasl.password", Text(), None, "Password, for DIGEST-MD5 and PLAIN.", default_text="none",
        secret=True, section="zookeeper"),
)
# fmt: on

SHARED_KEYS = (*(key for key in ZOOKEEPER_KEYS if key.name != "zookeeper.acl"), *SECURITY_KEYS)
"""The settings that consumers and producers share; a producer creates no nodes in ZooKeeper."""

KEYS: tuple[Key, ...] = (
    *_CONNECTION,
    *_FETCHING,
    *_COMMITTING,
    *_REBALANCING,
    *_BROKER_GROUPS,
    *_KAFKA_07,
    *_OWN,
    *ZOOKEEPER_KEYS,
    *SECURITY_KEYS,
)

CONSUMER_SETTINGS: Final = SettingTable(KEYS, hint_for_name)

find_key = CONSUMER_SETTINGS.find
names_of_07 = CONSUMER_SETTINGS.names_of_07
shown_name = CONSUMER_SETTINGS.shown_name
shown_pair = CONSUMER_SETTINGS.shown_pair
unknown_setting = CONSUMER_SETTINGS.unknown
