"""Embedded brokers of Kafka 0.11 and later: record batches, and requests in the versions that a broker lists.

`broker` reads requests and sends answers, `apis` lists what is served, one file for each; `generations` says in which
versions. `log` is a log with record batches, `batches`, `producers` and `epochs` are its pure parts.
"""
