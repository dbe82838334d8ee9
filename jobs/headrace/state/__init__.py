"""State between epochs: layers of rows, what they want next, which of them count."""
