"""Pipelines found and loaded from users' own files."""
