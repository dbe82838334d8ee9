"""The package that proves Headrace and does not run pipelines. It has the reference interpreter, conformance cases of
the Dataflow Model, a simulator of the barrier protocol, and the figures of the papers. Users' installations do without
it.
"""
