"""Embedded brokers of Kafka 0.7: logs by byte position, requests without acknowledgement, brokers that register topics.

`broker` answers, `requests` and `messages` are the pure formats, `log`, `segment` and `segment_list` are the files,
`registration` is the broker's part of ZooKeeper, `coordination` is the cluster's side.
"""
