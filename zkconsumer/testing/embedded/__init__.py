"""Kafka brokers in this process: the log on disk, the protocol, the registration in ZooKeeper, and faults.

`cluster` is the way in; `broker`, `server` (the sockets) and `faults` serve all generations. Kafka 0.7 is in `kafka07`,
and Kafka 0.9 and later in `kafka011`. Of Kafka 0.8, `log` and `segment` in `disk` are the files, `protocol` and
`messages` are pure, `coordination_08` and `leadership` decide who leads.
"""
