"""Message sets as Arrow record batches: the public names; needs numpy and pyarrow."""

from simpleconsumer.kafka08.columns import COLUMNS, MAX_BATCH_BYTES, decode_columns

__all__ = ["COLUMNS", "MAX_BATCH_BYTES", "decode_columns"]
