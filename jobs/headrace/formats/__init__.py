"""File formats: landed files as records of a schema."""
