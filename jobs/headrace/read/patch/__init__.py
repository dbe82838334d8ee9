"""Output patches: the rows that replace those of main."""
