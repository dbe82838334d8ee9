"""Whether a pipeline can continue from a snapshot, whose state another definition or other code of it may have made."""

from headrace.errors import FixConfigError
from headrace.pipeline.loading.code_digests import changed_code
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_changes import Action, named
from headrace.read.definition_plan import Plan, plan
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import outputs_of, seen_by


class ChangedPipelineError(FixConfigError, code="config.changed_pipeline"):
    """The state of the snapshot was made by another definition of the pipeline."""


class ChangedCodeError(FixConfigError, code="config.changed_code"):
    """Code of the user's own has changed since the snapshot, and the run is strict."""


def check_continues(pipeline: Pipeline, manifest: Manifest, *, allow_new_aggregates: bool, parks: bool = False) -> None:
    """Raise ChangedPipelineError unless ``pipeline`` can use the state of ``manifest``. ``allow_new_aggregates``: also
    where aggregates start empty for it, which is for people to say. ``parks``: it is enough if one output can, where
    outputs have names; the others wait.
    """
    had = outputs_of(manifest)
    if parks and pipeline.has_names and had:
        changed = changed_outputs(pipeline, manifest, allow_new_aggregates=allow_new_aggregates)
        if any(output in had and output not in changed for output in pipeline.outputs):
            return
    check_same_outputs(pipeline, manifest)
    for output, alone in pipeline.by_output.items():
        _check_output(output, plan(alone, seen_by(manifest, output)), allow_new_aggregates=allow_new_aggregates)


def changed_outputs(pipeline: Pipeline, manifest: Manifest, *, allow_new_aggregates: bool) -> dict[str, str]:
    """The outputs of ``pipeline`` that mean something else than in ``manifest``, which has them; what to do."""
    changed: dict[str, str] = {}
    for output in (name for name in outputs_of(manifest) if name in pipeline.outputs):
        difference = plan(pipeline.by_output[output], seen_by(manifest, output))
        try:
            _check_output(output, difference, allow_new_aggregates=allow_new_aggregates)
        except ChangedPipelineError as error:
            changed[output] = str(error)
    return changed


def check_same_outputs(pipeline: Pipeline, manifest: Manifest) -> None:
    """Raise ChangedPipelineError unless ``manifest`` has the outputs of ``pipeline``, by their names."""
    now, then = set(pipeline.outputs), set(outputs_of(manifest))
    if now == then:
        return
    has, had = (", ".join(sorted(names)) or "one without a name" for names in (now, then))
    raise ChangedPipelineError(
        f"pipeline {pipeline.name} has other outputs since snapshot {manifest.snapshot_id} (epoch {manifest.epoch}): "
        f"now {has}, then {had}. Run `headrace backfill {pipeline.name}` (or the backfill DAG), which computes all of "
        "them of all input in a new branch and cuts over; or take the change back"
    )


def _check_output(output: str, difference: Plan, *, allow_new_aggregates: bool) -> None:
    if difference.action is Action.REPLAY:
        again = (
            f"`headrace backfill {difference.pipeline}.{output} --promote`, which computes it again in a branch that "
            "main adopts it from"
            if output
            else f"`headrace backfill {difference.pipeline}` (or the backfill DAG), which replays all input into a new "
            "branch and cuts over"
        )
        raise ChangedPipelineError(
            f"{definition_change(difference, output)}. Its state means something else now (`headrace plan` says of "
            f"which aggregations). Run {again}; or take the change back"
        )
    if difference.starting_empty and not allow_new_aggregates:
        raise ChangedPipelineError(
            f"{definition_change(difference, output)}. Choose for {', '.join(difference.starting_empty)}: "
            f"{difference.choice}"
        )


def definition_change(difference: Plan, output: str = "") -> str:
    """The parts of the definition of an ``output`` that have changed since the snapshot, in a line."""
    at = f"snapshot {difference.snapshot} (epoch {difference.epoch})"
    what = f"output {output} of pipeline" if output else "pipeline"
    return f"{what} {difference.pipeline} has changed since {at}: {named(difference.changes)}"


def check_code(pipeline: Pipeline, manifest: Manifest, *, strict: bool) -> str | None:
    """A warning if code of the user's own has changed since ``manifest``. Raises ChangedCodeError where it is
    ``strict``.
    """
    changed = changed_code(pipeline, manifest.code)
    if not changed:
        return None
    reason = (
        f"the code of {', '.join(changed)} has changed since snapshot {manifest.snapshot_id} (epoch "
        f"{manifest.epoch}): the code as it was made the results so far"
    )
    if strict:
        raise ChangedCodeError(
            f"{reason}. Take the change back, run `headrace backfill {pipeline.name}` (or the backfill DAG), or leave "
            "out --strict"
        )
    return f"{reason}. A backfill computes them all again"
