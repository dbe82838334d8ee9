"""The command line ``headrace``."""
