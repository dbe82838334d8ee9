"""Files under a prefix, as a source."""
