"""Embedded brokers of Kafka 0.9 and later: requests in the versions that a broker serves, from 0.11 on record batches.

`broker` reads requests and sends answers, `apis` lists what is served, one file for each; `generations` says in which
versions. `log` is a log with record batches; `batches` and `conversion` are its pure parts. `group_coordinator` and
`transaction_coordinator` keep groups and transactions in logs.
"""
