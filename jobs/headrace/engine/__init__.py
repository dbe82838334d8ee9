"""The model on Spark: the only package that imports pyspark.

A pipeline compiles to DataFrames: ``source_*`` judges records, ``delta`` aggregates an epoch's records per (key,
window), ``state`` keeps what earlier epochs left, ``firing`` (pure column programs made from ``triggers``) says what
each (key, window) becomes and emits, ``step`` puts these together, ``writer`` makes files of the result.
"""
