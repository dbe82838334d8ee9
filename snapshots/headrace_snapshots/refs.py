"""The refs that every catalog has, by name."""

MAIN, PUBLISHED, TAGS = "main", "published", "tags/"
"""The branch that runs are on, what readers of it see, and what the ref of a tag begins with."""
