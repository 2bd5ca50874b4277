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

__all__ = ["RemediedError", "ZkConsumerError"]


class ZkConsumerError(Exception):
    """Root of everything that is raised on purpose, wrong arguments (`ValueError`, `TypeError`) aside.

    Attributes:
        remedy: What to do about it, a clause; empty where the message says it all.
    """

    remedy: str = ""


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
