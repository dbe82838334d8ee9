"""Joins on Arrow columns: sides judged, looked up, matched; what changed leaves with signs."""
