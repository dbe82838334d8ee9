"""What computes the epochs of a test."""
