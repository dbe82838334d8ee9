"""Delta: tables as a sink."""
