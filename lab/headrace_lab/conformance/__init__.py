"""Cases of the Dataflow Model, run on an executor: ``headrace conformance``."""
