"""Who is there and who leads what, as ZooKeeper and the brokers say it; how ZooKeeper is reached."""
