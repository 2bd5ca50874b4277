"""Groups that ZooKeeper coordinates: registrations, claims, the session, and what decides about them."""
