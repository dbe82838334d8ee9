"""Backfills: input read again into a branch."""
