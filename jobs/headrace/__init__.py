"""Headrace: one pipeline, in the terms of the Dataflow Model, as micro-batches, batch, backfill and replay."""

__version__ = "0.1.0"
