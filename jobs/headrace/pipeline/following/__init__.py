"""Other pipelines as sources."""
