"""Sinks brought to what is published."""
