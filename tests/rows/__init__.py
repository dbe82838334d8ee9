"""Outputs that are rows."""
