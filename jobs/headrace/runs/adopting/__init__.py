"""Adoption: one output is computed again in a branch, and main takes over what came of it."""
