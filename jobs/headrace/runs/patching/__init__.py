"""Output patches: rows of a branch replace those of main in windows that have expired."""
