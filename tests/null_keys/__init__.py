"""NULL as a key."""
