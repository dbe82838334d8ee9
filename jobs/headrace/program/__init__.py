"""A stage of a pipeline as a neutral column program: triggers, firing and their columns, for any executor.

Pure: no engine, no I/O, no clock.
"""
