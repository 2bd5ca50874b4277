"""The logs of partitions on the disk of an embedded broker."""
