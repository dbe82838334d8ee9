"""What a run says of itself: to a listener, and in its result object."""
