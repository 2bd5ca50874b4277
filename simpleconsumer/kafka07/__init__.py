"""The requests and message sets of Kafka 0.7: no correlation ids, no versions, byte positions instead of offsets.

Pure.
"""
