"""Reports, lists and deletes groups; releases claims of dead owners."""
