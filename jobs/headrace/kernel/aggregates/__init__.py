"""Aggregates of the kernel: combiners of ``headrace.model.combiners`` over groups of rows."""
