"""Sans-IO: which catalog entry may follow which, and who is fenced. Knows no format, no store and no model."""
