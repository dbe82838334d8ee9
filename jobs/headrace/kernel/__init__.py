"""The program of a stage on Arrow tables: the same for every executor. No I/O, no clock, no Spark."""
