"""What the data of a run must be like before readers see it, beside expectations: nothing here enters a fingerprint."""
