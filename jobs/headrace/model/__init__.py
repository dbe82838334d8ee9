"""The Dataflow Model as values: what can be said about a computation, nothing about how it runs.

Pure: no Spark, no I/O, no clock, no randomness. The ``reference`` and the ``kernel`` read these.
"""
