"""Groups that brokers coordinate: the protocol of their members, and who of them gets which partition."""
