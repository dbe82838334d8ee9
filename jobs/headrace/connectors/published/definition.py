"""What readers see of another pipeline as an input, which follows it wherever it goes, also back: its definition.

A ``PublishedSource`` says the name of that pipeline, its columns, and the sign of its panes.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, check_keywords
from headrace.model.changelog import SignedBy
from headrace.model.event_time import EventTime, FromSource
from headrace.model.expressions.columns import SourceColumns, WrittenColumns, columns_of_source, if_else, types_of
from headrace.model.expressions.data_types import DataType, Schema, in_words
from headrace.model.expressions.expr import col
from headrace.pipeline.endpoints import PLACE, BatchFunction, Input, OwnFunction, exploded_column, with_objects
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import PIPELINE_NAME
from headrace.pipeline.sources import IS_RETRACTION, OF_PANES, PANE_TIME, PUBLISHED_KIND, UpstreamSource


@dataclass(frozen=True, init=False)
class PublishedSource(UpstreamSource):
    """What readers see of ``upstream``, a pipeline or an output, below ``root``; None: below the reader's root. Written
    as ``published(...)``.
    """

    kind: ClassVar[str] = PUBLISHED_KIND
    carried: ClassVar[Schema] = OF_PANES

    upstream: str
    schema: SourceColumns
    max_files: int
    max_bytes: int
    transform: OwnFunction | None
    explode: str | None
    root: str | None = field(metadata=PLACE)

    def __init__(
        self,
        upstream: str,
        schema: WrittenColumns,
        *,
        root: str | None,
        max_files: int,
        max_bytes: int,
        transform: BatchFunction | None = None,
        explode: str | None = None,
    ) -> None:
        arguments = Arguments("published")
        name = arguments.text("upstream", upstream, "delays.hourly")
        parts = name.split(".")
        if len(parts) > 2 or not all(PIPELINE_NAME.fullmatch(part) for part in parts):
            raise arguments.refusal(
                "upstream",
                upstream,
                'write the name of a pipeline, "delays", or of one of its outputs, "delays.hourly"',
            )
        columns = columns_of_source(arguments, "schema", schema)
        types = types_of(columns)
        for column, kind in OF_PANES.items():
            if types.get(column, kind) is not kind:
                raise arguments.refusal("schema", schema, f"{column!r} of a pane is a {in_words(kind)}; leave it out")
        set_ = object.__setattr__
        set_(self, "upstream", name)
        set_(self, "schema", {**columns, **OF_PANES})
        set_(self, "root", None if root is None else arguments.text("root", root, "s3://bucket/analytics"))
        set_(self, "max_files", arguments.whole_number("max_files", max_files, least=1))
        set_(self, "max_bytes", arguments.whole_number("max_bytes", max_bytes, least=1))
        function = arguments.optional_instance(
            "transform", transform, BatchFunction, 'BatchFunction("module:function", ...)'
        )
        if function is not None and (repeated_names := [name for name in function.returns if name in OF_PANES]):
            raise arguments.refusal(
                "transform", transform, f"what is made of a pane has its {repeated_names[0]!r}: leave it out"
            )
        set_(self, "transform", function)
        set_(self, "explode", exploded_column(arguments, explode, self.schema, function))
        with_objects(arguments, self.explode, self.schema, "panes have none")
        set_(self, "changelog", SignedBy(if_else(col(IS_RETRACTION), -1, 1)))
        self.__post_init__()

    @property
    def pipeline(self) -> str:
        """The pipeline that is read."""
        return self.upstream.partition(".")[0]

    @property
    def output(self) -> str:
        """Its output that is read; "" for the only one, which has no name."""
        return self.upstream.partition(".")[2]

    @property
    def place(self) -> str:
        """The name, below the root if it is another one."""
        return self.upstream if self.root is None else f"{self.root.rstrip('/')}/{self.upstream}"

    def __str__(self) -> str:
        return f"what readers see of {self.upstream}" + ("" if self.root is None else f" under {self.root}")


@check_keywords
def published(
    upstream: str,
    schema: WrittenColumns | Pipeline,
    *,
    root: str | None = None,
    max_files: int = 100,
    max_bytes: int = 512 * 1024 * 1024,
    transform: BatchFunction | None = None,
    explode: str | None = None,
) -> Input:
    """Read what readers see of another pipeline: ``upstream`` is its name, ``"delays"``, or that of an output of it,
    ``"delays.hourly"``.

    Its panes are the elements, with their retractions and the times of panes; its output watermark is that of this
    input. What it takes back, by a rollback, a promotion or a patch, is taken back here by the next run. ``schema``
    names the columns of its key and values to read; or it is that pipeline itself, if the file can import it: then all
    of them but lists. Beside them are ``window_start``, ``window_end``, ``pane_time`` and ``is_retraction``; for a row
    these times are its event time, unless it has such columns. ``root`` is the URI of the root that it lies under, if
    that is another one. An epoch reads at most ``max_files`` snapshots of it, and about ``max_bytes`` of panes; more,
    if one has more. ``transform`` makes other rows of its panes, each with the times and the sign of its pane;
    ``explode`` is a list of the schema, of which each item gives one.

    >>> hr.published("delays.hourly", {"airport": str, "flights": int}).source.place
    'delays.hourly'
    """
    columns = _written_columns(upstream, schema) if isinstance(schema, Pipeline) else schema
    source = PublishedSource(
        upstream, columns, root=root, max_files=max_files, max_bytes=max_bytes, transform=transform, explode=explode
    )
    return Input(source, EventTime(col(PANE_TIME), FromSource(), max_ahead=None))


def _written_columns(upstream: str, pipeline: Pipeline) -> WrittenColumns:
    name, _, output = upstream.partition(".")
    if name != pipeline.name or output not in pipeline.by_output:
        has = ", ".join(f"{pipeline.name}.{own}" if own else pipeline.name for own in pipeline.by_output)
        raise PipelineError(f"published({upstream!r}): the pipeline that is given as its schema has {has}")
    schema = pipeline.by_output[output].stages[-1].pane_schema
    values = {column: kind for column, kind in schema.items() if isinstance(kind, DataType)}
    return {column: kind for column, kind in values.items() if column not in OF_PANES}
