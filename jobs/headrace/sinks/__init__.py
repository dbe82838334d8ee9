"""Targets that follow what is published, each in a room of its own that alone imports its client."""
