"""Loops: values of the vertices of a graph whose edges are records (semantics 13)."""
