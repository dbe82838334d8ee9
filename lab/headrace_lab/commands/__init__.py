"""Commands that this package adds to ``headrace`` (entry points of ``headrace.commands``)."""
