"""Data files of snapshots: written, read, and cached on the local disk."""
