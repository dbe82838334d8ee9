"""A view as the words of a command line name it, of a pipeline whose definition is at hand."""

from collections.abc import Callable

from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_changes import changed_since
from headrace.read.deployment import PipelineReader
from headrace.read.views.columns import STATE, View, ViewColumns
from headrace.read.views.lazy_view import LazyView
from headrace.read.views.sql import QueryError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


def viewed(
    pipeline: Pipeline,
    root: str,
    view: str,
    at: str,
    *,
    where: str | None = None,
    stage: int | None = None,
    tell: Callable[[str], None],
) -> LazyView:
    """The ``view`` of ``pipeline`` at ``at``, with the definition's columns while there is no snapshot; of ``state``
    that of the aggregation ``stage``.

    ``tell`` is told if the definition is not the one that made the snapshot. Raises QueryError, StateDefinitionError,
    and what snapshot_at raises.
    """
    if view not in {*View, STATE}:
        raise QueryError(f"there is no view {view!r}; there are {', '.join((*View, STATE))}")
    reader = PipelineReader(Catalog(open_store(root), pipeline.name), ViewColumns.of(pipeline))
    if view == STATE:
        tell("state: windows that are still open. None of it is a result; all of it may still change")
        return reader.state(pipeline=pipeline, stage=stage, at=at, where=where)
    if stage is not None:
        raise QueryError(f"stage={stage} is for the view {STATE}: {view} is of the last aggregation")
    found = reader.view(View(view), at=at, where=where)
    if found.manifest is not None and (changed := changed_since(pipeline, found.manifest)):
        tell(f"{changed}. `headrace plan {pipeline.name}` says what a run would do with it")
    return found
