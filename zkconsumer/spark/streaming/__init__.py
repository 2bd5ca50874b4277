"""Plans a stream batch by batch, and stores its offsets for a group."""
