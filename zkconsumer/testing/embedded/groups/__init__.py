"""Groups that an embedded broker coordinates: who is a member, and when they are assigned anew. Pure."""
