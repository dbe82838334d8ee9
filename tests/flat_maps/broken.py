"""A module that fails as it is imported."""

FAILS = 1 / 0
