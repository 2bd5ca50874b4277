"""Kafka 0.8.2 brokers in this process: the log on disk, the protocol, the registration in ZooKeeper, and faults.

`cluster` is the way in; `log`, `segment` and `index` are the files, `protocol` and `messages` are pure, `controller`
and `leadership` decide who leads, `server` owns the sockets.
"""
