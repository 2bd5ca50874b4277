"""Kafka brokers in this process: the log on disk, the protocol, the registration in ZooKeeper, and faults.

`cluster` is the way in; `broker`, `server` (the sockets), `faults` and `session` serve both generations. Kafka 0.7 is
in `kafka07`. Of Kafka 0.8, `log`, `segment` and `index` are the files, `protocol` and `messages` are pure, `controller`
and `leadership` decide who leads.
"""
