"""What is stored: manifests, log entries, layers and file logs, as versioned JSON with a checksum. No I/O."""
