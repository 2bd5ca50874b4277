"""Reports, creates, grows and deletes topics."""
