"""Message sets as Arrow record batches: the public names; needs numpy and pyarrow. Pure.

From Kafka 0.8 on one more column may be asked for by name: `headers`, a list of structs of `key` (string) and `value`
(binary), null for a message without headers. Kafka has them from 0.11 on (`KAFKA011.decode_columns`).

`COLUMNS` and `decode_columns` are those of Kafka 0.8 and later. For brokers of Kafka 0.7 there is
`KAFKA07.decode_columns`, whose batches have these columns by default (`KAFKA07.columns`):

    key             binary   always null: 0.7 has no keys
    value           binary
    offset          int64    byte position where the entry of the message starts
    entry_index     int32    number of the message in its compressed entry, 0 for plain ones
    next_offset     int64    the offset to commit after the message
    timestamp_ms    int64    always null
    timestamp_type  int32    always -1
"""

from simpleconsumer.kafka08.columns import COLUMNS, MAX_BATCH_BYTES, decode_columns

__all__ = ["COLUMNS", "MAX_BATCH_BYTES", "decode_columns"]
