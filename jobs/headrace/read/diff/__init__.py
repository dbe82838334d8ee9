"""What two snapshots do not have in common."""
