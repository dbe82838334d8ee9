"""Work beside the epochs: merges of layers."""
