"""Sources that cannot give their records again: these are landed as files first, and read from there."""
