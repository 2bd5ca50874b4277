"""The root of all errors that this project raises on purpose; it imports nothing, so that every package can import it.

    ZkConsumerError
    ├── simpleconsumer.errors.SimpleConsumerError  between us and one broker
    ├── rebalance.errors.RebalanceError            in the group and its znodes
    ├── zkconsumer.errors                          of the consumer: settings, streams, commits, ZooKeeper
    ├── zkconsumer.polling.errors.PollingError     of polling: subscriptions and positions
    ├── zkconsumer.producer.errors.ProducerError   of producers: messages that were not sent
    ├── zkconsumer.admin.errors.AdminError         of group administration
    ├── zkconsumer.spark.errors.SparkSourceError   of the Spark source and of loads
    ├── zkconsumer.testing.errors.KitError         of the test kit
    └── zkconsumer.cli.failures.CliError           of the command line

`from zkconsumer import ZkConsumerError` is its public name.
"""

__all__ = ["RemediedError", "ZkConsumerError", "printable", "shown"]


def printable(text: str, keep: str = "") -> str:
    """Return a text in which control characters, and all others that are not printed, are escaped as in a repr.

    What a broker or another client says may hold what moves the cursor of a terminal, or starts a new line of a log.

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
    """Root of everything that is raised on purpose, wrong arguments (`ValueError`, `TypeError`) aside.

    Attributes:
        remedy: What to do about it, a clause; empty where the message says it all.

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
        sentence: What is wrong, with the value and the place.
        remedy: What to do about it, a clause; empty when the sentence says it all.
    """

    def __init__(self, sentence: str, remedy: str = "") -> None:
        super().__init__(sentence, remedy)
        self.sentence = sentence
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence
