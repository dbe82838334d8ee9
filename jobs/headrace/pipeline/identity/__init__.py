"""What pipelines may be called, and when two are the same: a definition in words that never change; its fingerprint."""
