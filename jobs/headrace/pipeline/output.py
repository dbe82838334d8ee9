"""One of several outputs of a pipeline, what one reads that is computed of others, and well-known shapes of one.

An output with ``of=`` reads panes of other outputs of its pipeline, in one form. The others are computed of the same
records.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

from headrace.errors import PipelineError
from headrace.model.accumulation import How, accumulating, behind, discarding
from headrace.model.arguments import Arguments, Suggesting, did_you_mean, keywords
from headrace.model.combiners import Aggregate
from headrace.model.expressions.columns import Key
from headrace.model.expressions.data_types import DataType, ListType, Schema
from headrace.model.expressions.expr import Column, Expr, Literal
from headrace.model.expressions.typing import type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import Repeatedly
from headrace.model.triggers.elementary import AfterCount, Default
from headrace.model.windows import GlobalWindows, WindowFn
from headrace.pipeline.endpoints import Sink, named_sinks
from headrace.pipeline.group_rows import GroupRows, Take
from headrace.pipeline.quality import Expectation, Limits, UsualCheck
from headrace.pipeline.rows import RowColumns, Selection, check_without_windows, id_columns, named_columns, refuse_given
from headrace.pipeline.scheduling import PIPELINE_NAME as NAME
from headrace.pipeline.stages import OF_PANES, Aggregation, Loop, LoopError, Stage, grouping

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Upstream:
    """The panes of an ``output``, which the ``pipeline`` has alone. ``columns``: what the output below reads of them
    under other names than theirs, or beside their own columns.
    """

    output: str
    pipeline: "Pipeline"
    columns: Mapping[str, Expr]

    @property
    def stage(self) -> Stage:
        """The stage that gives the panes."""
        return self.pipeline.stages[-1]

    def expressions(self, schema: Schema) -> dict[str, Expr]:
        """Every column of ``schema`` over the columns of the panes: one that they lack is NULL. Raises PipelineError if
        one has another type.
        """
        return {name: self._expression(name, kind) for name, kind in schema.items()}

    def _expression(self, name: str, kind: DataType | ListType) -> Expr:
        assert isinstance(kind, DataType)  # what reads panes sees none of their lists
        panes = self.stage.pane_schema
        expr = self.columns.get(name, Column(name) if name in panes else Literal(None, kind))
        if (own := type_of(expr, panes)) is not kind:
            raise PipelineError(
                f"output {self.output} gives {name!r} as {own}, and the first of the outputs that are united as "
                f"{kind}: cast it in columns={{{self.output!r}: ...}}"
            )
        return expr


@dataclass(frozen=True)
class UnitedPanes:
    """The panes of some outputs as those of one: in the columns of the first, and those that ``columns=`` names."""

    upstream: tuple[Upstream, ...]

    @cached_property
    def schema(self) -> Schema:
        """The columns. Raises PipelineError if two outputs give one of them in different types."""
        schema = dict(self.upstream[0].stage.pane_schema)
        for number, above in enumerate(self.upstream):
            for name, expr in above.columns.items():
                kind = type_of(expr, above.stage.pane_schema)
                if kind is None:
                    raise PipelineError(f"columns of output {above.output}: {name!r} is always NULL; leave it out")
                if number == 0 or name not in schema:
                    schema[name] = kind
        for above in self.upstream:
            above.expressions(schema)
        return schema

    def stage(self, aggregation: Aggregation) -> Stage:
        """``aggregation`` of these panes, as the stage that it is: below one output it is what it is in ``then``; below
        several its allowed lateness is at least the longest of theirs (5.2), and rows can be withdrawn if one of them
        withdraws panes.
        """
        if aggregation.rows and not aggregation.takes_rows:
            return Stage(aggregation, self.schema, any(above.stage.withdraws for above in self.upstream))
        if len(self.upstream) == 1:
            return replace(self.upstream[0].stage.followed_by(aggregation), schema=self.schema)
        how = aggregation.how
        for above in self.upstream:
            how = behind(above.stage.aggregation.how, how)
        withdrawable = any(above.stage.withdraws for above in self.upstream)
        return Stage(aggregation.settled(aggregation.when, how), self.schema, withdrawable)


def upstream_first(outputs: "Mapping[str, AnyOutput]") -> list[str]:
    """The names of ``outputs``, each after those that it reads. Raises PipelineError for one that reads an output that
    is not there, or itself, in however many steps.
    """
    ordered: list[str] = []

    def place(name: str, path: Sequence[str]) -> None:
        if name in path:
            circle = " reads ".join((*path[path.index(name) :], name))
            raise PipelineError(f"output {circle}: outputs cannot read each other in a circle; leave one of= out")
        if name in ordered:
            return
        for above in outputs[name].of:
            if above not in outputs:
                raise PipelineError(
                    f"output {name} is of {above!r}, and there is no such output; {did_you_mean(above, outputs)}there "
                    f"are {', '.join(outputs)}"
                )
            place(above, (*path, name))
        ordered.append(name)

    for name in outputs:
        place(name, ())
    return ordered


def with_upstream(outputs: "Mapping[str, AnyOutput]", names: Collection[str]) -> frozenset[str]:
    """The outputs of these ``names``, and those whose panes they need."""
    needed = {*names}
    for name in reversed(upstream_first(outputs)):
        if name in needed:
            needed.update(outputs[name].of)
    return frozenset(needed)


AT_THE_END = Default()


@keywords
@dataclass(frozen=True, init=False)
class Output(Suggesting):
    """One aggregation of a pipeline's records, or several in a chain (``then``), beside the pipeline's other
    ``outputs``.

    Its arguments mean what those of a ``Pipeline`` with one output mean. ``filter`` comes after that of the pipeline,
    which is for all outputs, and after duplicates are told. ``limits`` are shares of records; where it has none, those
    of the pipeline count. What fails them, ``expectations`` or ``usual``, holds back this output alone.

    With ``of`` it reads the panes of another output in place of records, as an aggregation in ``then`` reads those of
    the one before it; ``when`` None continues that one's trigger. ``of`` with several names is their union (12.18): its
    columns are those of the first one's panes. ``columns`` gives columns by output, ``{"returns": {"sales":
    -col("refunds")}}``, as expressions over that output's panes; if it leaves one out, the output's own column of that
    name counts, or NULL. ``loop``: records are edges (see ``Loop``). ``formerly``: the name that the output had; ""
    where the pipeline had one without a name.

    >>> hourly = hr.Output(key="shop", what={"total": hr.col("amount").sum()}, where=hr.FixedWindows("1h"))
    >>> list(hourly.what)
    ['total']
    >>> hr.Output(of="hourly", what={"total": hr.col("total").sum()}, where=hr.CalendarWindows("day")).of
    ('hourly',)
    """

    of: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Expr]]
    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate | Expr]
    where: WindowFn
    when: Trigger | None
    how: How
    filter: Expr | None
    having: Expr | None
    renamed: Mapping[str, str]
    loop: Loop | None
    first: Aggregation = field(init=False, repr=False, compare=False)
    then: tuple[Aggregation, ...]
    expectations: tuple[Expectation, ...]
    usual: tuple[UsualCheck, ...]
    sinks: tuple[Sink, ...]
    limits: Limits | None
    description: str
    formerly: str | None
    allow_finishing: bool
    allow_double_counting: bool

    def __init__(
        self,
        *,
        of: str | Sequence[str] = (),
        columns: Mapping[str, Mapping[str, Expr]] | None = None,
        key: Key = None,
        what: Mapping[str, Aggregate | Expr] | None = None,
        where: WindowFn,
        when: Trigger | None = AT_THE_END,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        having: Expr | None = None,
        renamed: Mapping[str, str] | None = None,
        loop: Loop | None = None,
        then: Sequence[Aggregation] = (),
        expectations: Sequence[Expectation] = (),
        usual: Sequence[UsualCheck] = (),
        sinks: Sequence[Sink] = (),
        limits: Limits | None = None,
        description: str = "",
        formerly: str | None = None,
        allow_finishing: bool = False,
        allow_double_counting: bool = False,
    ) -> None:
        given = Arguments("Output")
        upstream = _upstream(given, of)
        if when is None and len(upstream) != 1:
            which = "several outputs have several triggers" if upstream else "there is no trigger before it to continue"
            raise given.wrong("when", when, f"{which}; leave it out for Default()")
        first = grouping(
            given,
            loop,
            key=key,
            what={} if what is None else what,
            where=where,
            when=when,
            how=how,
            filter=filter,
            having=having,
            renamed=renamed,
        )
        set_ = object.__setattr__
        set_(self, "of", upstream)
        set_(self, "columns", _columns(given, columns, upstream))
        if first.loop is not None and upstream:
            raise LoopError(f"{given.owner}(loop): {OF_PANES}")
        for part, value in first.fields.items():
            set_(self, part, value)
        set_(self, "then", given.several("then", then, Aggregation, "Aggregation(...)"))
        quality = _Quality(expectations, usual, sinks, limits, description, formerly)
        for name, value in quality.checked(given).items():
            set_(self, name, value)
        set_(self, "allow_finishing", given.flag("allow_finishing", allow_finishing))
        set_(self, "allow_double_counting", given.flag("allow_double_counting", allow_double_counting))


@keywords
@dataclass(frozen=True, init=False)
class Rows(Suggesting):
    """Rows as an output, beside the pipeline's other ``outputs``: one of each record that passes ``filter``, or some of
    each group.

    ``rows`` are its columns: expressions by name, or names of columns that are taken as they are. A row leaves with the
    epoch that read its record, and has the record's ``event_time``; it is withdrawn only if a changelog withdraws the
    record. A record of which a column cannot be computed is a dead letter. ``id`` names columns that are unique: sinks
    upsert by them, and the audit holds rows to it. With ``of`` it reads the panes, or rows, of other outputs.
    With ``take`` those rows of each ``key`` leave that it says: ``newest``, ``top`` or ``distinct``. ``rows`` are then
    all columns of what comes unless they are named, and the key's. ``where``, ``when`` and ``how`` mean what they mean
    of an ``Output``; left out they are one group for all time that fires whenever it changes. A row that counts no more
    is withdrawn. Of windows rows have ``window_start`` and ``window_end``.
    All other arguments mean what those of an ``Output`` mean.

    >>> paid = hr.Rows(["id", "shop"], filter=hr.col("status") == "paid", id="id")
    >>> list(paid.rows)
    ['id', 'shop']
    >>> current = hr.Rows(key="id", take=hr.newest("updated_at"), id="id")
    """

    of: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Expr]]
    rows: Mapping[str, Expr]
    key: Mapping[str, Expr]
    take: Take | None
    where: WindowFn
    when: Trigger | None
    how: How
    id: tuple[str, ...]
    filter: Expr | None
    renamed: Mapping[str, str]
    first: Selection = field(init=False, repr=False, compare=False)
    expectations: tuple[Expectation, ...]
    usual: tuple[UsualCheck, ...]
    sinks: tuple[Sink, ...]
    limits: Limits | None
    description: str
    formerly: str | None

    def __init__(
        self,
        rows: RowColumns = (),
        *,
        of: str | Sequence[str] = (),
        columns: Mapping[str, Mapping[str, Expr]] | None = None,
        key: Key = None,
        take: Take | None = None,
        where: WindowFn | None = None,
        when: Trigger | None = AT_THE_END,
        how: How | None = None,
        id: str | Sequence[str] | None = None,  # noqa: A002 (the word of the domain)
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        renamed: Mapping[str, str] | None = None,
        expectations: Sequence[Expectation] = (),
        usual: Sequence[UsualCheck] = (),
        sinks: Sequence[Sink] = (),
        limits: Limits | None = None,
        description: str = "",
        formerly: str | None = None,
    ) -> None:
        given = Arguments("Rows")
        set_ = object.__setattr__
        upstream = _upstream(given, of)
        if take is None:
            check_without_windows(given, {"key": key, "where": where, "when": when, "how": how})
            first: Selection = Selection(given.owner, rows, filter, renamed)
        else:
            first = GroupRows(
                given.owner,
                rows,
                key=key,
                where=where,
                when=when,
                how=how,
                take=take,
                condition=filter,
                renamed=renamed if rows else None,
            )
        set_(self, "first", first)
        for name in ("key", "where", "when", "how", "filter"):
            set_(self, name, getattr(first, name))
        set_(self, "rows", first.rows if take is None or rows else {})
        set_(self, "renamed", first.renamed if self.rows else {**(renamed or {})})
        set_(self, "take", take)
        names = id_columns(given, id, first.rows) if self.rows else named_columns(given, id)
        set_(self, "id", names)
        set_(self, "of", upstream)
        set_(self, "columns", _columns(given, columns, upstream))
        quality = _Quality(expectations, usual, sinks, limits, description, formerly)
        for name, value in quality.checked(given).items():
            set_(self, name, value)


AnyOutput = Output | Rows
"""An output of either kind."""


@dataclass(frozen=True)
class _Quality:
    """Arguments that outputs of both kinds have."""

    expectations: Sequence[Expectation]
    usual: Sequence[UsualCheck]
    sinks: Sequence[Sink]
    limits: Limits | None
    description: str
    formerly: str | None

    def checked(self, given: Arguments) -> dict[str, object]:
        """The values of the fields. Raises PipelineError."""
        return {
            "expectations": given.several("expectations", self.expectations, Expectation, "expect(...)"),
            "usual": given.several("usual", self.usual, UsualCheck, "usual_volume(within=2)"),
            "sinks": named_sinks(given, self.sinks),
            "limits": _limits(given, self.limits),
            "description": given.instance("description", self.description, str, "text"),
            "formerly": given.optional("formerly", self.formerly, str, 'a name, or ""'),
        }


def _upstream(given: Arguments, of: object) -> tuple[str, ...]:
    names = (of,) if isinstance(of, str) else of
    outputs = given.several("of", names, str, '"hourly", or ("orders", "returns")')
    if len({*outputs}) < len(outputs):
        raise given.wrong("of", of, "an output counts once; leave out what is named twice")
    return outputs


def _columns(given: Arguments, columns: object, upstream: Sequence[str]) -> dict[str, Mapping[str, Expr]]:
    write = '{"returns": {"sales": expression}}'
    by_output = given.mapping("columns", {} if columns is None else columns, dict, write, least=0)
    for output, own in by_output.items():
        if output not in upstream:
            reads = f"reads {', '.join(upstream)}" if upstream else "reads records; name outputs in of="
            raise given.wrong("columns", columns, f"it gives columns of {output!r}, and the output {reads}")
        given.mapping(f"columns[{output!r}]", own, Expr, write)
    return {**by_output}


def _limits(given: Arguments, limits: object) -> Limits | None:
    if limits is None:
        return None
    own = given.instance("limits", limits, Limits, 'Limits(rejected="1%")')
    if own.are_ages:
        raise given.wrong("limits", limits, "ages are of input that all outputs read: give them to the pipeline")
    return own


def named_outputs(given: Arguments, outputs: object) -> dict[str, AnyOutput]:
    """The ``outputs`` of a pipeline by name; none if it has one without a name. Raises PipelineError."""
    if outputs is None:
        return {}
    write = '{"hourly": Output(...), "cleaned": Rows(...)}'
    named: dict[str, AnyOutput] = given.mapping("outputs", outputs, (Output, Rows), write, least=0)  # type: ignore[arg-type] # one of the two
    for name in named:
        if not NAME.fullmatch(name) or name == "py":  # shop.py is a file
            raise given.wrong(
                "outputs",
                name,
                "write lower case letters, digits and _, at most 63, starting with a letter; not py",
            )
    former = [output.formerly for output in named.values() if output.formerly is not None]
    if len({*former}) < len(former):
        raise given.wrong("outputs", former, "of two outputs, formerly= says the same name; one of them had it")
    final = [sink.name for output in named.values() for sink in output.sinks if sink.gets_final_rows]
    for sink in final:
        if final.count(sink) > 1:
            raise given.wrong(
                "outputs",
                sink,
                "sinks of final rows of two outputs have this name, which is part of the ids of their rows; give one "
                "of them a name= of its own",
            )
    try:
        upstream_first(named)
    except PipelineError as error:
        raise given.wrong("outputs", [*named], str(error)) from None
    return named


def check_apart(given: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that each output has of its ``own`` is given beside them."""
    refuse_given(given, own, "a pipeline with outputs= has it in each of them; write it into an Output")


class WhereWhenHow(TypedDict):
    """Three arguments of a pipeline, to be given with ``**``."""

    where: WindowFn
    when: Trigger
    how: How


@keywords
def count_windows(n: int) -> WhereWhenHow:
    """Windows of ``n`` elements of a key in their order of arrival: ``Pipeline(..., **count_windows(100))``.

    They are panes of the global window (semantics 9.9): pane_index counts them. Bundles are atomic, so a pane holds all
    that came up to the epoch in which the count was reached: ``n`` elements or more. A remainder below ``n`` is
    emitted when the input ends.

    >>> sorted(hr.count_windows(100))
    ['how', 'when', 'where']
    """
    Arguments("count_windows").whole("n", n, least=1)
    return WhereWhenHow(where=GlobalWindows(), when=Repeatedly(AfterCount(n)), how=discarding())


@keywords
def sliding_count_windows(size: int, period: int) -> WhereWhenHow:
    """The last ``size`` elements of a key whenever ``period`` more have come, in their order of arrival.

    As with ``count_windows``, what comes in one epoch makes one pane: of its last ``size`` elements.

    >>> hr.sliding_count_windows(size=100, period=10)["how"].keep_last
    100
    """
    given = Arguments("sliding_count_windows")
    given.whole("size", size, least=1)
    given.whole("period", period, least=1)
    return WhereWhenHow(where=GlobalWindows(), when=Repeatedly(AfterCount(period)), how=accumulating(keep_last=size))
