"""The modules that are mutated: pure ones and the hot path, each with its tests. None of them needs a real server."""

from __future__ import annotations

from typing import Final

__all__ = ["TESTS"]

_REBALANCE: Final = "tests/rebalance/test_"
_ZOOKEEPER: Final = "tests/rebalance/zookeeper/test_"
_WIRE: Final = "tests/simpleconsumer/test_"
_FETCHING: Final = "tests/fetching/test_"
_MEMBER: Final = "tests/member/test_"
_OFFSETS: Final = "tests/offsets/test_"
_STREAMS: Final = "tests/streams/test_"
_SETS: Final = [
    f"{_WIRE}{name}.py" for name in ("offset_order", "shallow_end", "wrappers", "values", "message_set_properties")
]
_SETS_07: Final = [f"{_WIRE}{name}.py" for name in ("kafka07_message_set", "kafka07_fast_paths", "kafka07_properties")]
_COLUMNS: Final = [f"{_WIRE}{name}.py" for name in ("columns", "columns_properties")]
_STORE: Final = [f"{_OFFSETS}offset_{name}.py" for name in ("loads", "writes", "rivals", "faults", "fences")]

TESTS: Final[dict[str, list[str]]] = {
    "rebalance/subscription.py": [
        f"{_REBALANCE}assignment.py",
        f"{_REBALANCE}subscription.py",
        f"{_ZOOKEEPER}snapshot.py",
    ],
    "rebalance/java_regex.py": [f"{_REBALANCE}java_regex.py", f"{_REBALANCE}subscription.py"],
    "rebalance/lease.py": [f"{_REBALANCE}lease.py"],
    "rebalance/zookeeper/znodes.py": [f"{_ZOOKEEPER}znodes.py"],
    "rebalance/zookeeper/machine.py": [f"{_ZOOKEEPER}machine.py"],
    "rebalance/partition.py": [f"{_REBALANCE}partition.py"],
    "rebalance/zookeeper/refused_nodes.py": [f"{_ZOOKEEPER}refused_nodes_again.py"],
    "rebalance/zookeeper/snapshot.py": [f"{_ZOOKEEPER}snapshot.py", f"{_ZOOKEEPER}machine.py"],
    "rebalance/zookeeper/waits.py": [
        f"{_ZOOKEEPER}membership_changes.py",
        f"{_ZOOKEEPER}waits.py",
        f"{_ZOOKEEPER}machine.py",
    ],
    "simpleconsumer/codecs.py": [f"{_WIRE}codecs.py", f"{_WIRE}wrappers.py"],
    "simpleconsumer/kafka07/message_set.py": [f"{_WIRE}kafka07_fetching.py", *_SETS_07, *_SETS_07],
    "simpleconsumer/kafka07/dialect.py": [
        f"{_WIRE}kafka07_fetching.py",
        *[f"{_WIRE}kafka07_{name}.py" for name in ("dialect", "requests", "fetching", "message_set", "cuts")],
    ],
    "simpleconsumer/kafka07/columns.py": [f"{_WIRE}kafka07_cuts.py", *_SETS_07, f"{_WIRE}kafka07_batches.py"],
    "simpleconsumer/kafka07/requests.py": [f"{_WIRE}kafka07_requests.py", *_SETS_07],
    "simpleconsumer/kafka08/classify.py": [
        f"{_WIRE}classify.py",
        f"{_WIRE}down_conversion.py",
        f"{_WIRE}entry_heads.py",
    ],
    "simpleconsumer/column_rows.py": _COLUMNS,
    "simpleconsumer/kafka08/columns.py": _COLUMNS,
    "simpleconsumer/primitives.py": [
        *_SETS[:2],
        *[f"{_WIRE}{name}.py" for name in ("primitives", "framing", "kafka08_requests", "kafka08_responses")],
    ],
    "simpleconsumer/kafka08/message_set.py": _SETS,
    "simpleconsumer/kafka08/offset_order.py": [*_SETS, *_SETS[:2], *_SETS[:2]],
    "zkconsumer/fetching/byte_shares.py": [f"{_FETCHING}byte_shares.py"],
    "zkconsumer/admin/verify/offset_findings.py": ["tests/admin/test_verify_findings.py"],
    "zkconsumer/admin/offsets/offset_lines.py": ["tests/admin/test_offset_lines.py"],
    "zkconsumer/admin/offsets/offset_plans.py": ["tests/admin/test_offset_target.py"],
    "zkconsumer/member/delivery.py": [
        f"{_MEMBER}delivery{name}.py" for name in ("", "_pauses", "_threads", "_in_hand")
    ],
    "zkconsumer/fetching/fetch_state.py": [f"{_FETCHING}fetch_state.py"],
    "zkconsumer/fetching/partition_queue.py": [
        f"{_FETCHING}partition_queue.py",
        f"{_STREAMS}stream.py",
        f"{_STREAMS}stream_batches.py",
        f"{_MEMBER}delivery_pauses.py",
    ],
    "zkconsumer/member/leaving.py": [f"{_MEMBER}leaving.py"],
    "zkconsumer/mirror/lanes/lane.py": ["tests/mirror/test_lane_machine.py", "tests/mirror/test_lanes_simulated.py"],
    "zkconsumer/offsets/offset_records.py": [f"{_OFFSETS}offset_records.py", f"{_OFFSETS}start_offsets.py"],
    "zkconsumer/offsets/commit_batch.py": _STORE,
    "zkconsumer/offsets/member_offsets.py": _STORE,
    "zkconsumer/offsets/zookeeper_offsets.py": _STORE,
    "zkconsumer/wakeup.py": [
        "tests/zkconsumer/test_missed_signals.py",
        f"{_FETCHING}partition_queue.py",
        f"{_MEMBER}leaving.py",
    ],
}
