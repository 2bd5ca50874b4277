"""Shows, sets, deletes, exports and imports stored offsets, in ZooKeeper and in Kafka."""
