"""Real Apache Kafka brokers of any version from 0.7.2 to 3.9.2, as child processes."""

from zkconsumer.testing.kafka.cluster import KafkaCluster, kafka_versions

__all__ = ["KafkaCluster", "kafka_versions"]
