"""A pipeline that is read by another one: what of it was read, what has changed since, and the elements of that."""
