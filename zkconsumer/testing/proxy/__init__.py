"""A TCP proxy that breaks and slows connections, and reads and changes the Kafka and ZooKeeper traffic in them."""

from zkconsumer.testing.proxy.tcp_proxy import TcpProxy

__all__ = ["TcpProxy"]
