"""What outputs with a loop, pipelines over a changelog, and circles of pipelines may not say.

What an output with a loop may not say of where, when and how (semantics 13).

What a pipeline may not say whose records can withdraw others: what could not take back (semantics 14.9).

Circles of pipelines that read each other: none of them could ever be the first to be computed.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, TimestampCombiner
from headrace.model.calendar import CalendarWindows
from headrace.model.changelog import DebeziumEnvelope, RecordSign, SignedBy
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.typing import type_of
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.triggers.data_driven import AfterPattern
from headrace.model.windows import FixedWindows, GlobalWindows
from headrace.pipeline.checks.trigger_checks import check_finishing, looks_at_values, nodes
from headrace.pipeline.loop import OF_PANES, element_schema
from headrace.pipeline.loop_step import LoopError
from headrace.pipeline.source import Input
from headrace.pipeline.sources import FilesSource
from headrace.pipeline.upstream_source import UpstreamSource

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline


def check_loop(pipeline: "Pipeline") -> None:
    """Raise LoopError if the loop of a ``pipeline`` has no result, or one that depends on how input is cut."""
    assert pipeline.loop is not None
    if pipeline.upstream:
        raise LoopError(f"loop: {OF_PANES}")
    element_schema(pipeline.loop, pipeline.key, pipeline.schema)
    for why in (_wrong_loop_windows(pipeline), _wrong_loop_how(pipeline), _wrong_loop_trigger(pipeline)):
        if why is not None:
            raise LoopError(why)


def _wrong_loop_windows(pipeline: "Pipeline") -> str | None:
    where = pipeline.first.where
    if isinstance(where, GlobalWindows | CalendarWindows) or (isinstance(where, FixedWindows) and where.phase is None):
        return None
    return (
        f"where={where!r}: the ends of an edge must be in the same window, and in one: a loop takes GlobalWindows(), "
        "FixedWindows without a phase, or CalendarWindows"
    )


def _wrong_loop_how(pipeline: "Pipeline") -> str | None:
    how = pipeline.first.how
    if how.accumulation is Accumulation.DISCARDING:
        return (
            "how: discarding forgets the value of a vertex with each pane, and edges that come later need it; use "
            "how=retracting() or how=accumulating()"
        )
    if how.keep_last is not None:
        return "how: keep_last needs an order of arrival, which the values of a loop do not have; leave it out"
    if how.timestamp is not TimestampCombiner.END_OF_WINDOW:
        return "how: the values of a loop are of the whole window, at its end; leave timestamp out"
    return None


def _wrong_loop_trigger(pipeline: "Pipeline") -> str | None:
    if pipeline.allow_finishing:
        return (
            "allow_finishing=True: a window that has finished forgets its values, and edges that come later need them; "
            "leave it out"
        )
    ordered = [node for node in nodes(pipeline.stages[0].when) if isinstance(node, AfterPattern | CustomTrigger)]
    if ordered:
        return (
            f"when: {type(ordered[0]).__name__} looks at elements in their order of arrival, which the values of a "
            "loop do not have; use another trigger"
        )
    return None


_WITHDRAWN = "records can be withdrawn"


def check_changelogs(pipeline: "Pipeline") -> None:
    """Raise PipelineError if changelogs of inputs do not fit their records, or if the first aggregation of the only
    output of a ``pipeline``, which reads records, could not take them back.
    """
    for given in pipeline.inputs:
        if isinstance(given.source, UpstreamSource) and pipeline.deduplicate is not None:
            raise PipelineError(
                f"deduplicate: what input {given.name} reads can be taken back and come again, and would count as a "
                f"duplicate then; leave it out, and let {given.source.upstream} count its records once"
            )
        try:
            _check_input(given)
        except PipelineError as error:
            raise PipelineError(f"changelog of input {given.name}: {error}") from None
    if not pipeline.withdraws_records or pipeline.upstream:
        return
    for problem in (_wrong_how(pipeline), _wrong_windows(pipeline), _wrong_trigger(pipeline)):
        if problem is not None:
            raise PipelineError(problem)


def _check_input(given: Input) -> None:
    source, changelog = given.source, given.source.changelog
    if changelog is None:
        return
    transform = source.transform
    if transform is not None and not isinstance(changelog, SignedBy):
        raise PipelineError(
            f"it is read of the source's own records, and {transform.name} makes others of them: let the function give "
            "a column of 1 and -1, and name that one"
        )
    if transform is not None and not transform.deterministic:
        raise PipelineError(
            f"{transform.name} is declared not deterministic: nobody could find again what it made of a record, to "
            "withdraw it; use a deterministic function"
        )
    if isinstance(changelog, DebeziumEnvelope) and isinstance(source, FilesSource) and source.format == "csv":
        raise PipelineError("a CSV file has no objects, and an envelope is one; read JSON or Parquet")
    if isinstance(changelog, RecordSign):
        kind = type_of(changelog.sign_of(source.schema), source.as_read.columns)
        if kind is not DataType.INT:
            raise PipelineError(
                f"it is {kind}, and must be int: 1 of a record that adds a row, -1 of one that withdraws it"
            )


def _wrong_how(pipeline: "Pipeline") -> str | None:
    how = pipeline.first.how
    if how.keep_last is not None:
        return (
            f"how: {_WITHDRAWN}, and a window that keeps its last elements may have forgotten them; leave out keep_last"
        )
    if how.accumulation is Accumulation.RETRACTING:
        return None
    which = how.accumulation.name.lower()
    left = {
        Accumulation.ACCUMULATING: "the row of a window would stand whose records are all withdrawn",
        Accumulation.DISCARDING: "a pane has only what came since the one before it, which is not what is there",
    }
    return f"how: {_WITHDRAWN}, and in {which} mode {left[how.accumulation]}; use how=retracting(...)"


def _wrong_windows(pipeline: "Pipeline") -> str | None:
    where = pipeline.first.where
    if pipeline.loop is not None:
        return (
            f"loop: {_WITHDRAWN}, and the values of a loop hold each other up: on a circle that nothing leads to any "
            "more each would keep what its neighbour says"
        )
    if where.merges:
        return (
            f"where: {_WITHDRAWN}, and a withdrawn one may have linked two sessions, which never split; use windows "
            "that do not merge"
        )
    of_arrival = [given.name for given in pipeline.inputs if given.source.changelog and given.event_time.expr is None]
    if of_arrival and not isinstance(where, GlobalWindows):
        return (
            f"where: records of input {of_arrival[0]} can be withdrawn, and go by the time of arrival, so a withdrawal "
            "would come to another window than what it withdraws; give it the event time of the row, or use "
            "GlobalWindows()"
        )
    return None


def _wrong_trigger(pipeline: "Pipeline") -> str | None:
    when, how = pipeline.stages[0].when, pipeline.first.how
    if (of_values := looks_at_values(when)) is not None:
        return (
            f"when: {_WITHDRAWN}, and {of_values} looks at what elements hold, where a withdrawal would be one "
            "more; use on_update(), or a trigger that counts or waits"
        )
    try:
        check_finishing(when, how.allowed_lateness)
    except PipelineError:
        return (
            f"when: {_WITHDRAWN}, and a trigger that finishes closes its window, where nothing is withdrawn any more; "
            "use Repeatedly(...), or AfterWatermark with a late trigger"
        )
    return None


N = TypeVar("N")


class UpstreamCycleError(PipelineError, code="config.upstream_cycle"):
    """A pipeline reads itself, through whatever others."""

    @classmethod
    def along(cls, circle: Iterable[object]) -> "UpstreamCycleError":
        """The error that names a ``circle``, with the same pipeline at both ends."""
        path = " reads ".join(map(str, circle))
        return cls(f"{path}: a pipeline cannot read itself, through whatever others; leave one of the inputs out")


def check_no_circle(start: N, upstreams: Callable[[N], Iterable[N]]) -> None:
    """Raise UpstreamCycleError, with the shortest way round, if ``start`` reads itself. ``upstreams`` is asked of each
    pipeline once.
    """
    ways: dict[N, tuple[N, ...]] = {start: (start,)}
    front = [start]
    for name in front:  # which grows
        for above in upstreams(name):
            if above == start:
                raise UpstreamCycleError.along((*ways[name], start))
            if above not in ways:
                ways[above] = (*ways[name], above)
                front.append(above)


def check_beside(pipeline: "Pipeline", beside: "Iterable[Pipeline]" = ()) -> None:
    """Raise UpstreamCycleError if ``pipeline`` reads itself through those ``beside`` it, whatever root they are under:
    what is read under a root that is named counts for nothing.
    """
    known = {one.name: one for one in (*beside, pipeline)}
    check_no_circle(pipeline.name, lambda name: read_beside(known[name]) if name in known else ())


def read_beside(pipeline: "Pipeline") -> list[str]:
    """The pipelines that ``pipeline`` reads under its own root, whatever that is."""
    if not any(given.source.is_upstream for given in pipeline.inputs):
        return []
    from headrace.pipeline.upstream_source import upstream_sources  # which most pipelines do without

    return [source.pipeline for source in upstream_sources(pipeline).values() if source.root is None]
