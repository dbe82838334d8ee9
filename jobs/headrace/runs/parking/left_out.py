"""The outputs that a run goes on without, as somebody has told it to (``--without``)."""

from headrace.pipeline.upstream import with_upstream
from headrace.runs.context import RunContext
from headrace.runs.options import RunOptionsError


def left_out(run: RunContext) -> frozenset[str]:
    """The outputs that ``run`` is told to go on without, and all that read them: these stand with what they read."""
    without, outputs = {*run.options.without}, run.pipeline.outputs
    if not without:
        return frozenset()
    return frozenset(without) | {name for name in outputs if not with_upstream(outputs, {name}).isdisjoint(without)}


def check_left_out(run: RunContext) -> None:
    """Raise RunOptionsError for a name of no output, or if no output is left."""
    without, outputs = {*run.options.without}, [*run.pipeline.outputs]
    names = f"pipeline {run.pipeline.name} has the outputs {', '.join(outputs) or 'of no name'}"
    if without - {*outputs} or (without and without >= {*outputs}):
        raise RunOptionsError(f"{names}: --without names some of them, not all")
    if without and left_out(run) >= {*outputs}:
        raise RunOptionsError(
            f"{names}, and all others read what would be left out ({', '.join(sorted(without))}), so none would go on"
        )
