"""Outputs that are parked: how they go on, and for how long others go on without them."""
