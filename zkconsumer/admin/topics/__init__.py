"""Reports, creates, grows, deletes, sets and cuts topics."""
