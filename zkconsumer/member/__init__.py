"""One member of a group, from joining it to leaving it."""
