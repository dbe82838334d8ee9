"""Iceberg: tables of a catalog as a sink."""
