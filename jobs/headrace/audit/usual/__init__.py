"""A range of epochs against what was usual: what is measured of it, how that is compared, where it is kept."""
