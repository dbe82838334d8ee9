"""Executors as a run sees them: what it asks of one, its side of each, and which it takes."""
