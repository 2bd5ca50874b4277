"""Run as a child process: consumes a few messages and dies with the last of them in hand, without any farewell.

One argument: JSON with zookeeper, group, topic and how many messages to read. Dies with exit code 3, once auto-commit
has written all that counts as done.
"""

from __future__ import annotations

import json
import os
import sys

from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing.waiting import wait_until


def main() -> None:
    wanted = json.loads(sys.argv[1])
    config = ConsumerConfig(
        wanted["zookeeper"],
        wanted["group"],
        auto_offset_reset="smallest",
        auto_commit_interval_ms=20,
        zookeeper_session_timeout_ms=1000,
        consumer_timeout_ms=20_000,
    )
    connector = ConsumerConnector(config)
    [stream] = connector.create_message_streams({wanted["topic"]: 1})[wanted["topic"]]
    message = None
    for _ in range(wanted["read"]):
        message = next(stream)
    assert message is not None

    def committed() -> list[int | None]:
        return [each.committed for each in connector.status().owned if each.partition == message.partition]

    wait_until(lambda: committed() == [message.offset], 20, "what is done to be committed", state=committed)
    os._exit(3)


main()
