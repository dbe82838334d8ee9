"""Expressions on Arrow columns."""
