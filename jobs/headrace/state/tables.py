"""The tables of a snapshot that hold state."""

from headrace.pipeline.pipeline import Pipeline

IDS = "ids"
"""Ids by which duplicates are told."""


def state_tables(pipeline: Pipeline) -> list[str]:
    """The names of the tables that hold the state of each stage."""
    return [f"state_{i}" if i else "state" for i in range(len(pipeline.stages))]
