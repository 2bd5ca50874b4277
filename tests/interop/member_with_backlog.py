"""Run as a child process: joins a group, reads one message, waits for the end of its standard input, then reads on.

One argument: JSON with zookeeper, group, topic, count (messages in all) and queued_max_bytes. The last line of the
output is JSON with what was read and by how many bytes the peak of resident memory grew since before joining.
"""

from __future__ import annotations

import json
import resource
import sys

from zkconsumer import ConsumerConfig, ConsumerConnector


def peak_bytes() -> int:
    """Peak of resident memory so far; Linux counts in KiB, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    config = ConsumerConfig(
        wanted["zookeeper"],
        wanted["group"],
        auto_offset_reset="smallest",
        consumer_timeout_ms=30_000,
        queued_max_bytes=wanted["queued_max_bytes"],
    )
    before = peak_bytes()
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({wanted["topic"]: 1})[wanted["topic"]]
        partitions = {next(stream).partition}
        print("joined", flush=True)
        sys.stdin.read()
        for _ in range(wanted["count"] - 1):
            partitions.add(next(stream).partition)
    print(json.dumps({"partitions": len(partitions), "grown_bytes": peak_bytes() - before}), flush=True)


main()
