"""How brokers of one version of Kafka differ from others in requests of the same version. Pure."""

from __future__ import annotations

from typing import NamedTuple

from zkconsumer.testing.embedded.groups.values import GroupRules


class Habits(NamedTuple):
    """Of one version of Kafka.

    Attributes:
        log_magic: the newest format of entries in its logs: 0, 1, or 2 for record batches.
        is_before_2: whether it answers as brokers before 2.0 do.
        is_since_3: whether it does as brokers of 3.9 and later: a fetch brings no part of an entry that is too large,
            an empty list of aborted transactions where the partition is unknown, and null in place of what it cannot
            convert; a batch of a transaction is taken where the partition was added to it.
        drops_headers: whether clients that do not know headers get messages without them; 0.11 answers error -1.
        is_silent: whether it says nothing to a request that it does not know; others close the connection.
        offset_record: the version of values of offsets in `__consumer_offsets`.
        group_record: the same of groups.
        forwards_changes: whether every broker takes changes of topics, and not the controller alone.
        groups: how groups are coordinated; times and sizes are settings.
        completing: the name of the state in which a group waits for its leader.
        checks_added_partitions: whether AddPartitionsToTxn takes only partitions that there are; 1.1 looks at topics.
    """

    log_magic: int = 2
    is_before_2: bool = False
    is_since_3: bool = False
    drops_headers: bool = True
    is_silent: bool = False
    checks_added_partitions: bool = True
    forwards_changes: bool = False
    offset_record: int = 3
    group_record: int = 3
    groups: GroupRules = GroupRules()
    completing: str = "CompletingRebalance"
