"""Expiry: which objects a catalog still needs, and the deletion of all others."""
