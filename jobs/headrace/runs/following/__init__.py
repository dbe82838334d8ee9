"""A run of a pipeline that reads other pipelines: what it cannot take back, and what it needs them to keep."""
