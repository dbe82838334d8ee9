"""PostgreSQL: tables as a sink, of rows and of changes."""
