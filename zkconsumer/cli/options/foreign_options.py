"""Says what options of Kafka's own tools are called here, when a command does not know them.

Source: kafka.tools.ConsoleConsumer, ConsoleProducer, kafka.admin.TopicCommand, ConsumerGroupCommand (0.7.2 to 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

__all__ = ["hint_for_option"]

_CALLED: Final[Mapping[str, str]] = {
    "--zkconnect": "--zookeeper",
    "--zk.connect": "--zookeeper",
    "--zookeeper.connect": "--zookeeper",
    "--consumer.config": "--config",
    "--command-config": "--config",
    "--consumer-property": "--property",
    "--delete-consumer-offsets": "--delete-offsets",
    "--include": "--whitelist",
    "--producer.config": "--config",
    "--producer-config": "--config",
    "--producer-property": "--property",
    "--broker-list": "--brokers",
    "--bootstrap-server": "--brokers",
    "--bootstrap-servers": "--brokers",
    "--compression-codec": "--codec",
    "--message-send-max-retries": "--retries",
    "--request-required-acks": "--acks",
    "--shift-by": "--shift",
    "--to-earliest": "--to earliest",
    "--to-latest": "--to latest",
    "--to-offset": "--to OFFSET",
    "--to-datetime": "--to TIME",
}
"""What an option is called here, for commands that have it."""
_CALLED_ELSE: Final[Mapping[str, str]] = {"--broker-list": "--bootstrap-server"}
"""What it is called in other commands."""
_BROKERS: Final = "this command needs ZooKeeper; give --zookeeper HOSTS"
_HINTS: Final[Mapping[str, str]] = {
    "--bootstrap-server": _BROKERS,
    "--bootstrap-servers": _BROKERS,
    "--broker-list": _BROKERS,
    "--new-consumer": "--bootstrap-server or --zookeeper chooses the groups; leave it out",
    "--skip-message-on-error": "messages that cannot be read are reported and skipped; leave it out",
    "--retry-backoff-ms": "give --property retry.backoff.ms=N",
    "--request-timeout-ms": "give --property request.timeout.ms=N",
    "--max-memory-bytes": "give --property queue.buffering.max.bytes=N",
    "--sync": "the command waits for the outcome of every line; leave it out",
    "--fetch-size": "give --property fetch.message.max.bytes=N",
    "--list": "use `zkconsumer groups` or `zkconsumer topics`",
    "--describe": "use `zkconsumer describe GROUP` or `zkconsumer topics NAME`",
    "--reset-offsets": "use `zkconsumer offsets set GROUP`",
    "--execute": "changes are written unless --dry-run is given; leave it out",
}


def hint_for_option(option: str, known: Collection[str]) -> str:
    """Return what to give instead of an option that a command does not have, a clause; empty if nothing is known.

    Args:
        option: As it was given, such as `--bootstrap-server`.
        known: The options that the command has.
    """
    for names in (_CALLED, _CALLED_ELSE):
        called = names.get(option)
        if called is not None and called.split()[0] in known:
            return f"it is called {called} here"
    return _HINTS.get(option, "")
