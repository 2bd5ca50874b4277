"""The way to ZooKeeper: requests as plain values, and the port that sends them with kazoo."""
