"""Records of sources with a changelog as changes, each with its sign."""
