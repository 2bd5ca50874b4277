"""Members of a group: join, deliver owned partitions, notify the listener, pause, leave."""
