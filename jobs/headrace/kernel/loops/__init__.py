"""The rounds of a loop on Arrow tables (semantics 13)."""
