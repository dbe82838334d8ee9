"""What can be wrong with a pipeline when it is built."""
