"""Expressions of one record: the tree, its methods, its types."""
