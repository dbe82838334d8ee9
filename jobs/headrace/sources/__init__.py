"""Where elements come from: files read in shares, records judged. No Spark."""
