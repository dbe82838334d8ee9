"""Views of a snapshot: their columns, their files, and the rows that a condition asks for."""
