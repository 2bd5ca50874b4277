"""Where an embedded cluster is registered: in ZooKeeper, or in this process."""
