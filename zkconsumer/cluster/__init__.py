"""Brokers, topics, leaders and log ends of a cluster, and connections to its ZooKeeper."""
