"""Real Apache Kafka brokers of any version from 0.7.2 to 4.3.1, as child processes."""

from zkconsumer.testing.kafka.cluster import KafkaCluster
from zkconsumer.testing.kafka.known_versions import kafka_versions

__all__ = ["KafkaCluster", "kafka_versions"]
