"""Trigger trees as column programs: a class for each node of the model, to which ``compile_trigger`` leads."""

from headrace.program.triggers import composites as composites  # both register how their triggers compile
from headrace.program.triggers import leaves as leaves
