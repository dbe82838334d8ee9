"""What crosses between two levels of tasks."""
