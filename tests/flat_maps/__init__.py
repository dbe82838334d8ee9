"""Other records made of those of a source."""
