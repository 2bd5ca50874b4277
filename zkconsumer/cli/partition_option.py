"""The type of `--partition`: a number, or the name of a partition of Kafka 0.7, such as `0-3`."""

from __future__ import annotations

import click

from rebalance.zookeeper.znodes_07 import is_partition

__all__ = ["PartitionType"]


class PartitionType(click.ParamType[int | str]):
    """Takes `3` and `0-3`."""

    name = "partition"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text.isascii() and text.isdigit() and len(text) <= 19:
            return int(text)
        if not is_partition(text):
            self.fail(f"{text!r} is not a partition: a number such as 3, or in Kafka 0.7 a name such as 0-3", param,
                      ctx)
        return text
