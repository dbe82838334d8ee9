"""What readers see of another pipeline as an input, which follows it wherever it goes, also back."""

from headrace.errors import PipelineError
from headrace.model.arguments import keywords
from headrace.model.expressions.columns import WrittenColumns
from headrace.model.expressions.expr import col
from headrace.model.watermarks import FromSource
from headrace.pipeline.event_time import EventTime
from headrace.pipeline.following.published_source import PublishedSource
from headrace.pipeline.following.upstream_source import OF_PANES, PANE_TIME
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Input


@keywords
def published(
    upstream: str,
    schema: WrittenColumns | Pipeline,
    *,
    root: str | None = None,
    max_files: int = 100,
    max_bytes: int = 512 * 1024 * 1024,
) -> Input:
    """Read what readers see of another pipeline, ``"delays"``, or of an output of one, ``"delays.hourly"``.

    Its panes are the elements, with their retractions and the times of panes; its output watermark is that of this
    input. What it takes back, by a rollback, a promotion or a patch, is taken back here by the next run. ``schema``
    names the columns of its key and values to read; or it is that pipeline itself, if the file can import it: then all
    of them. Beside them are ``window_start``, ``window_end``, ``pane_time`` and ``is_retraction``. ``root`` is the URI
    of the root that it lies under, if that is another one. An epoch reads at most ``max_files`` snapshots of it, and
    about ``max_bytes`` of panes; more, if one has more.

    >>> hr.published("delays.hourly", {"airport": str, "flights": int}).source.place
    'delays.hourly'
    """
    columns = _columns(upstream, schema) if isinstance(schema, Pipeline) else schema
    source = PublishedSource(upstream, columns, root=root, max_files=max_files, max_bytes=max_bytes)
    return Input(source, EventTime(col(PANE_TIME), FromSource(), max_ahead=None))


def _columns(upstream: str, pipeline: Pipeline) -> WrittenColumns:
    name, _, output = upstream.partition(".")
    if name != pipeline.name or output not in pipeline.by_output:
        has = ", ".join(f"{pipeline.name}.{own}" if own else pipeline.name for own in pipeline.by_output)
        raise PipelineError(f"published({upstream!r}): the pipeline that is given as its schema has {has}")
    schema = pipeline.by_output[output].stages[-1].pane_schema
    return {column: kind for column, kind in schema.items() if column not in OF_PANES}
