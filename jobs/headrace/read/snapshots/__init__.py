"""Snapshots: which one a reader means, and what its manifest says."""
