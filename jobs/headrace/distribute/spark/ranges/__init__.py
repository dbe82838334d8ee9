"""Sources that Spark reads: a user's class gives a DataFrame for a range, and a job lands it as files."""
