"""Families of DAGs: what each is asked for, and Headrace's own."""
