"""The APIs of producers with an id, and of their transactions.

Source: clients/src/main/resources/common/message (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.messages.api import Api

INIT_PRODUCER_ID: Final = Api(
    22, "InitProducerId", (0, 1, 3, 4), 2, throttled_from=0,
    request="""
        transactional_id: string?
        transaction_timeout_ms: int32
        producer_id: int64 3+
        producer_epoch: int16 3+
    """,
    response="""
        throttle_time_ms: int32 = 0
        error_code: int16
        producer_id: int64
        producer_epoch: int16
    """,
)  # fmt: skip

ADD_PARTITIONS_TO_TXN: Final = Api(
    24, "AddPartitionsToTxn", (0, 1), 3, throttled_from=0,
    request="""
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        topics: []
            name: string
            partitions: []int32
    """,
    response="""
        throttle_time_ms: int32 = 0
        topics: []
            name: string
            partitions: []
                partition_index: int32
                error_code: int16
    """,
)  # fmt: skip

END_TXN: Final = Api(
    26, "EndTxn", (0, 1), 3, throttled_from=0,
    request="""
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        committed: bool
    """,
    response="""
        throttle_time_ms: int32 = 0
        error_code: int16
    """,
)  # fmt: skip
