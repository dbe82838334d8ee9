"""Why the windows of a key have fired, or wait."""
