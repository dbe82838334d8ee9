"""Pipelines that read pipelines as one: which read which, where each has come, what depends on what."""
