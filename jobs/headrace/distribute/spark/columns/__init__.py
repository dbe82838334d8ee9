"""Figures of columns of a DataFrame."""
