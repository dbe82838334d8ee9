"""The Dataflow Model as values: what can be said about a computation, nothing about how it runs.

Pure: no Spark, no I/O, no clock, no randomness. Both executors (``reference`` and ``engine``) read these.
"""
