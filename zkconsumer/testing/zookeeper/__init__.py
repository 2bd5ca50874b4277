"""Real ZooKeeper servers, and tools that act on sessions, nodes and groups in them."""

from zkconsumer.testing.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer, end_session

__all__ = ["ZooKeeperEnsemble", "ZooKeeperServer", "end_session"]
