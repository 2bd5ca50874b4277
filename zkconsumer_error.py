"""The root of all errors that this project raises on purpose, and Kafka's error codes. Every package may import it.

    ZkConsumerError
    ├── simpleconsumer.errors.SimpleConsumerError  between us and one broker
    ├── rebalance.errors.RebalanceError            in the group and its znodes
    ├── zkconsumer.errors                          of the consumer: settings, streams, commits, ZooKeeper
    ├── zkconsumer.polling.errors.PollingError     of polling: subscriptions and positions
    ├── zkconsumer.producer.errors.ProducerError   of producers: messages that were not sent
    ├── zkconsumer.mirror.errors.LaneError         of lanes: batches that are copied whole
    ├── zkconsumer.admin.values.AdminError         of group administration
    ├── zkconsumer.spark.errors.SparkSourceError   of the Spark source and of loads
    ├── zkconsumer.testing.errors.KitError         of the test kit
    └── zkconsumer.cli.terminal.CliError           of the command line

`from zkconsumer import ZkConsumerError` is its public name.
"""

import enum

__all__ = ["ErrorCode", "RemediedError", "ZkConsumerError", "first_few", "printable", "shown"]


def first_few(*items: object, most: int = 5, between: str = ", ", rest: str = " and {} more") -> str:
    """Return the first items as text, and how many more there are.

    >>> first_few("a", "b", "c", "d", most=3), first_few(*range(5), most=2, between="; ", rest="; ...")
    ('a, b, c and 1 more', '0; 1; ...')

    Args:
        *items: The items that a message lists.
        most: How many it shows.
        between: The text between two of them.
        rest: The text that follows if there are more; `{}` stands for their number.
    """
    return between.join(map(str, items[:most])) + (rest.format(len(items) - most) if len(items) > most else "")


def printable(text: str, keep: str = "") -> str:
    """Return a text in which control characters, and all others that are not printed, are escaped as in a repr.

    The text of a broker or another client may move the cursor of a terminal, or start a new line of a log.

    Args:
        keep: Characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else repr(each)[1:-1] for each in text)


def shown(error: BaseException) -> str:
    """Return the repr of somebody else's error, without the whole text that it could not encode or decode.

    That may be a secret, and often is a message.
    """
    if isinstance(error, UnicodeEncodeError | UnicodeDecodeError):
        return f"{type(error).__name__}({error.encoding!r}, position {error.start}: {error.reason})"
    return repr(error)


class ZkConsumerError(Exception):
    """Base class of all errors raised on purpose, except for wrong arguments (`ValueError`, `TypeError`).

    Attributes:
        remedy: The advice, as a clause; empty where the message says it all.

    The text of each error is `printable`, as brokers and other clients have a say in it.
    """

    remedy: str = ""
    _kept_characters = ""

    def __init_subclass__(cls) -> None:
        text_of = cls.__dict__.get("__str__")
        if text_of is not None:
            setattr(cls, "__str__", lambda self: printable(text_of(self), self._kept_characters))  # noqa: B010

    def __str__(self) -> str:
        return printable(super().__str__(), self._kept_characters)


class RemediedError(ZkConsumerError):
    """An error whose message is a sentence and its remedy.

    Attributes:
        sentence: The fault, with the value and the place.
        remedy: The advice, as a clause; empty when the sentence says it all.
    """

    def __init__(self, sentence: str, remedy: str = "") -> None:
        super().__init__(sentence, remedy)
        self.sentence = sentence
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence


class ErrorCode(enum.IntEnum):
    """The error codes of Kafka's protocol, by Kafka's names. `simpleconsumer.errors.broker_error` says what each means.

    Brokers may send codes that are newer than this list, so answers hold plain numbers.

    Source: org.apache.kafka.common.protocol.Errors (4.3).
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
