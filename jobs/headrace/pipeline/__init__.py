"""What a user writes: a frozen pipeline, checked when it is built. Its names are importable from ``headrace``."""
