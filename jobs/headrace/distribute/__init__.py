"""How an epoch is spread over tasks."""
