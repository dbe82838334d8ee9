"""Whether two pipelines are the same: a definition in words that never change, and its fingerprint."""
