"""What pipelines may be called, and whether two are the same: a definition in words that never change, its fingerprint."""
