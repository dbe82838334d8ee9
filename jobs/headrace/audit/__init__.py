"""What epochs wrote, held against the pipeline's expectations; publish trusts only the stored outcome."""
