"""Records that withdraw others (semantics 14)."""
