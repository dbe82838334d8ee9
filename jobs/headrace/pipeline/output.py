"""One of several outputs of a pipeline, what one reads that is computed of others, and well-known shapes of one.

An output with ``of=`` reads panes of other outputs of its pipeline, in one form. The others are computed of the same
records.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from headrace.errors import PipelineError
from headrace.model.accumulation import How, accumulating, discarding
from headrace.model.arguments import Arguments, Suggesting, check_keywords, did_you_mean
from headrace.model.expressions.columns import Key
from headrace.model.expressions.expr import Aggregate, Expr
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import Repeatedly
from headrace.model.triggers.elementary import AfterCount, Default
from headrace.model.windows import GlobalWindows, WindowFn
from headrace.pipeline.endpoints import Sink, named_sinks
from headrace.pipeline.joins import Join
from headrace.pipeline.loops import OF_PANES, Loop, LoopError
from headrace.pipeline.quality import Expectation, Limits, UsualCheck
from headrace.pipeline.rows import (
    AT_THE_END,
    Every,
    GroupRows,
    RowColumns,
    Selection,
    Take,
    named_columns,
    refuse_given,
    select_columns,
)
from headrace.pipeline.scheduling import PIPELINE_NAME as NAME
from headrace.pipeline.stages import Aggregation, GroupingFields, make_grouping


def upstream_first(outputs: "Mapping[str, AnyOutput]") -> list[str]:
    """The names of ``outputs``, each after those that it reads, or joins. Raises PipelineError for one that reads an
    output that is not there, or itself, in however many steps.
    """
    names_in_order: list[str] = []

    def place_output(name: str, path: Sequence[str]) -> None:
        if name in path:
            circle = " reads ".join((*path[path.index(name) :], name))
            why = "outputs cannot read each other in a circle; leave one of= or join= out"
            raise PipelineError(f"output {circle}: {why}")
        if name in names_in_order:
            return
        for upstream_name in list_upstream(outputs[name]):
            if upstream_name not in outputs:
                how = "is of" if upstream_name in outputs[name].of else "joins"
                raise PipelineError(
                    f"output {name} {how} {upstream_name!r}, and there is no such output; "
                    f"{did_you_mean(upstream_name, outputs)}there are {', '.join(outputs)}"
                )
            place_output(upstream_name, (*path, name))
        names_in_order.append(name)

    for name in outputs:
        place_output(name, ())
    return names_in_order


def list_upstream(output: "AnyOutput") -> tuple[str, ...]:
    """The outputs that an ``output`` reads: those that it is of, and those that these join."""
    return (*dict.fromkeys((*output.of, *(join.name for join in output.join if join.is_of_output))),)


def with_upstream(outputs: "Mapping[str, AnyOutput]", names: Collection[str]) -> frozenset[str]:
    """The outputs of these ``names``, and those whose panes they need."""
    needed_names = {*names}
    for name in reversed(upstream_first(outputs)):
        if name in needed_names:
            needed_names.update(list_upstream(outputs[name]))
    return frozenset(needed_names)


DEFAULT = Default()


@dataclass(frozen=True, init=False, repr=False, eq=False)
class OutputFields(Suggesting):
    """What outputs of both kinds have: what they read, what must hold of them, and where they are copied to."""

    of: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Expr]]
    join: tuple[Join, ...]
    expectations: tuple[Expectation, ...]
    usual: tuple[UsualCheck, ...]
    sinks: tuple[Sink, ...]
    limits: Limits | None
    description: str
    formerly: str | None
    null_keys: bool

    def _set_shared(self, arguments: Arguments, upstream: tuple[str, ...], values: Mapping[str, Any]) -> None:
        checked_values = {
            "of": upstream,
            "columns": _columns_by_output(arguments, values["columns"], upstream),
            "join": _checked_joins(arguments, values["join"], upstream),
            "expectations": arguments.tuple_of("expectations", values["expectations"], Expectation, "expect(...)"),
            "usual": arguments.tuple_of("usual", values["usual"], UsualCheck, "usual_volume(within=2)"),
            "sinks": named_sinks(arguments, values["sinks"]),
            "limits": _checked_limits(arguments, values["limits"]),
            "description": arguments.instance("description", values["description"], str, "text"),
            "formerly": arguments.optional_instance("formerly", values["formerly"], str, 'a name, or ""'),
            "null_keys": arguments.flag("null_keys", values["null_keys"]),
        }
        for name, value in checked_values.items():
            object.__setattr__(self, name, value)


@check_keywords
@dataclass(frozen=True, init=False)
class Output(GroupingFields, OutputFields):
    """One aggregation of a pipeline's records, or several in a chain (``then``), beside the pipeline's other
    ``outputs``.

    Its arguments mean what those of a ``Pipeline`` with one output mean: ``key``, ``what``, ``where``, ``when``,
    ``how``, ``having``, ``renamed``, ``sinks``, ``null_keys``, ``allow_finishing`` and ``allow_double_counting``.
    ``description`` is text for people. ``filter`` comes after that of the pipeline,
    which is for all outputs, and after duplicates are told. ``limits`` are shares of records; where it has none, those
    of the pipeline count. What fails them, ``expectations`` or ``usual``, holds back this output alone.

    With ``of`` it reads the panes of another output in place of records, as an aggregation in ``then`` reads those of
    the one before it; ``when`` None continues that one's trigger. ``of`` with several names is their union (12.18): its
    columns are those of the first one's panes. ``columns`` gives columns by output, ``{"returns": {"sales":
    -col("refunds")}}``, as expressions over that output's panes; if it leaves one out, the output's own column of that
    name counts, or NULL. ``join`` comes after that of the pipeline, and is for this output alone; with ``of`` it names
    other outputs, ``as_of("rates", on="currency")``. ``loop``: records are
    edges (see ``Loop``). ``formerly``: the name that the output had; "" where the pipeline had one without a name.

    >>> hourly = hr.Output(key="shop", what={"total": hr.col("amount").sum()}, where=hr.FixedWindows("1h"))
    >>> list(hourly.what)
    ['total']
    >>> hr.Output(of="hourly", what={"total": hr.col("total").sum()}, where=hr.CalendarWindows("day")).of
    ('hourly',)
    """

    loop: Loop | None
    first: Aggregation = field(init=False, repr=False, compare=False)
    then: tuple[Aggregation, ...]
    allow_finishing: bool
    allow_double_counting: bool

    def __init__(
        self,
        *,
        of: str | Sequence[str] = (),
        columns: Mapping[str, Mapping[str, Expr]] | None = None,
        join: Sequence[Join] = (),
        key: Key = None,
        what: Mapping[str, Aggregate | Expr] | None = None,
        where: WindowFn,
        when: Trigger | None = DEFAULT,
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
        null_keys: bool = False,
        allow_finishing: bool = False,
        allow_double_counting: bool = False,
    ) -> None:
        arguments = Arguments("Output")
        upstream = _checked_upstream(arguments, of)
        if when is None and (len(upstream) != 1 or join):
            which = "joined rows have none" if upstream and join else "several outputs have several triggers"
            which = which if upstream else "there is no trigger before it to continue"
            raise arguments.refusal("when", when, f"{which}; leave it out for Default()")
        questions = {"where": where, "when": when, "how": how, "having": having, "renamed": renamed}
        first = make_grouping(arguments, loop, key=key, what=what, filter=filter, **questions)
        set_ = object.__setattr__
        if first.loop is not None and upstream:
            raise LoopError(f"{arguments.owner}(loop): {OF_PANES}")
        for part, value in first.fields.items():
            set_(self, part, value)
        set_(self, "then", arguments.tuple_of("then", then, Aggregation, "Aggregation(...)"))
        values: dict[str, object] = {"columns": columns, "join": join, "expectations": expectations, "usual": usual}
        values |= {"sinks": sinks, "limits": limits, "description": description, "formerly": formerly}
        self._set_shared(arguments, upstream, values | {"null_keys": null_keys})
        set_(self, "allow_finishing", arguments.flag("allow_finishing", allow_finishing))
        set_(self, "allow_double_counting", arguments.flag("allow_double_counting", allow_double_counting))


@check_keywords
@dataclass(frozen=True, init=False)
class Rows(OutputFields):
    """Rows as an output, beside the pipeline's other ``outputs``: one of each record that passes ``filter``, or some of
    each group.

    ``rows`` are its columns: expressions by name, or names of columns that are taken as they are. A row leaves with the
    epoch that read its record, and has the record's ``event_time``; it is withdrawn only if a changelog withdraws the
    record. A record of which a column cannot be computed is a dead letter. ``id`` names columns that are unique: sinks
    upsert by them, and the audit holds rows to it. With ``of`` it reads the panes, or rows, of other outputs.
    With ``take`` those rows of each ``key`` leave that it says: ``newest``, ``top`` or ``distinct``; or those that a
    ``function`` of yours or a ``query`` makes of them. ``rows`` are then all columns of what comes unless they are
    named, and the key's. ``where``, ``when`` and ``how`` mean what they mean
    of an ``Output``; left out they are one group for all time that fires whenever it changes. A row that counts no more
    is withdrawn. Rows of windows have ``window_start`` and ``window_end``.
    ``join``, ``renamed``, ``expectations``, ``usual``, ``limits``, ``sinks``, ``description``, ``formerly`` and
    ``null_keys`` mean what those of an ``Output`` mean.

    >>> paid = hr.Rows(["id", "shop"], filter=hr.col("status") == "paid", id="id")
    >>> list(paid.rows)
    ['id', 'shop']
    >>> current = hr.Rows(key="id", take=hr.newest("updated_at"), id="id")
    """

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

    def __init__(
        self,
        rows: RowColumns = (),
        *,
        of: str | Sequence[str] = (),
        columns: Mapping[str, Mapping[str, Expr]] | None = None,
        join: Sequence[Join] = (),
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
        null_keys: bool = False,
    ) -> None:
        arguments = Arguments("Rows")
        set_ = object.__setattr__
        upstream = _checked_upstream(arguments, of)
        questions: dict[str, Any] = {"key": key, "where": where, "when": when, "how": how}
        if take is None or isinstance(take, Every):
            own = questions | {"null_keys": null_keys}
            first = select_columns(arguments.owner, rows, own, condition=filter, renamed=renamed)
        else:
            renames = renamed if rows else None
            first = GroupRows(arguments.owner, rows, take=take, condition=filter, renamed=renames, **questions)
        set_(self, "first", first)
        for name in ("key", "where", "when", "how", "filter", "take"):
            set_(self, name, first.fields[name])
        set_(self, "rows", first.rows if take is None or rows else {})
        set_(self, "renamed", first.renamed if self.rows else {**(renamed or {})})
        names = first.id_columns(arguments, id) if self.rows else named_columns(arguments, id)
        set_(self, "id", names)
        values: dict[str, object] = {"columns": columns, "join": join, "expectations": expectations, "usual": usual}
        values |= {"sinks": sinks, "limits": limits, "description": description, "formerly": formerly}
        self._set_shared(arguments, upstream, values | {"null_keys": null_keys})


AnyOutput = Output | Rows
"""An output of either kind."""


def _checked_upstream(arguments: Arguments, upstream: object) -> tuple[str, ...]:
    names = (upstream,) if isinstance(upstream, str) else upstream
    outputs = arguments.tuple_of("of", names, str, '"hourly", or ("orders", "returns")')
    if len({*outputs}) < len(outputs):
        raise arguments.refusal("of", upstream, "an output counts once; leave out what is named twice")
    return outputs


def _checked_joins(arguments: Arguments, join: Sequence[Join], upstream: Sequence[str]) -> tuple[Join, ...]:
    joins = arguments.tuple_of("join", join, Join, 'as_of(rates, on="currency")')
    for one in joins:
        if upstream and not one.is_of_output:
            raise arguments.refusal(
                "join",
                one.name,
                f"this reads panes of outputs, and {one.name} is an input, whose records are joined with records. Join "
                "in the output above it; or let a pipeline of its own read this one, hr.published(...), and join there",
            )
        if one.is_of_output and not upstream:
            raise arguments.refusal(
                "join",
                one.name,
                "panes of an output are joined with panes, and this reads records. Let these be an output of their "
                f'own, such as "taken": hr.Rows([...]), and join where they are read: of="taken", join=[{one.made_by}('
                f'"{one.name}", ...)]',
            )
    return joins


def _columns_by_output(arguments: Arguments, columns: object, upstream: Sequence[str]) -> dict[str, Mapping[str, Expr]]:
    write = '{"returns": {"sales": expression}}'
    by_output = arguments.mapping("columns", {} if columns is None else columns, dict, write, least=0)
    for output, own in by_output.items():
        if output not in upstream:
            reads = f"reads {', '.join(upstream)}" if upstream else "reads records; name outputs in of="
            raise arguments.refusal("columns", columns, f"it gives columns of {output!r}, and the output {reads}")
        arguments.mapping(f"columns[{output!r}]", own, Expr, write)
    return {**by_output}


def _checked_limits(arguments: Arguments, limits: object) -> Limits | None:
    if limits is None:
        return None
    own = arguments.instance("limits", limits, Limits, 'Limits(rejected="1%")')
    if own.are_ages:
        raise arguments.refusal("limits", limits, "ages are of input that all outputs read: give them to the pipeline")
    return own


def named_outputs(arguments: Arguments, outputs: object) -> dict[str, AnyOutput]:
    """The ``outputs`` of a pipeline by name; none if it has one without a name. Raises PipelineError."""
    if outputs is None:
        return {}
    write = '{"hourly": Output(...), "cleaned": Rows(...)}'
    outputs_by_name: dict[str, AnyOutput] = arguments.mapping("outputs", outputs, (Output, Rows), write, least=0)  # type: ignore[arg-type] # one of the two
    for name in outputs_by_name:
        if not NAME.fullmatch(name) or name == "py":  # shop.py is a file
            raise arguments.refusal(
                "outputs",
                name,
                "write lower case letters, digits and _, at most 63, starting with a letter; not py",
            )
    former = [output.formerly for output in outputs_by_name.values() if output.formerly is not None]
    if len({*former}) < len(former):
        raise arguments.refusal(
            "outputs", former, "in two outputs, formerly= says the same name; only one of them can have had it"
        )
    final = [sink.name for output in outputs_by_name.values() for sink in output.sinks if sink.gets_final_rows]
    for sink in final:
        if final.count(sink) > 1:
            raise arguments.refusal(
                "outputs",
                sink,
                "sinks of final rows of two outputs have this name, which is part of the ids of their rows; give one "
                "of them a name= of its own",
            )
    try:
        upstream_first(outputs_by_name)
    except PipelineError as error:
        raise arguments.refusal("outputs", [*outputs_by_name], str(error)) from None
    return outputs_by_name


def check_apart(arguments: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that each output has of its ``own`` is given beside them."""
    refuse_given(arguments, own, "a pipeline with outputs= has it in each of them; write it into an Output")


class WhereWhenHow(TypedDict):
    """Three arguments of a pipeline, to be given with ``**``."""

    where: WindowFn
    when: Trigger
    how: How


@check_keywords
def count_windows(n: int) -> WhereWhenHow:
    """Windows of ``n`` elements of a key in their order of arrival: ``Pipeline(..., **count_windows(100))``.

    They are panes of the global window (semantics 9.9): pane_index counts them. Bundles are atomic, so a pane holds all
    that came up to the epoch in which the count was reached: ``n`` elements or more. A remainder below ``n`` is
    emitted when the input ends.

    >>> sorted(hr.count_windows(100))
    ['how', 'when', 'where']
    """
    Arguments("count_windows").whole_number("n", n, least=1)
    return WhereWhenHow(where=GlobalWindows(), when=Repeatedly(AfterCount(n)), how=discarding())


@check_keywords
def sliding_count_windows(size: int, period: int) -> WhereWhenHow:
    """The last ``size`` elements of a key whenever ``period`` more have come, in their order of arrival.

    The elements of one epoch make one pane, as in ``count_windows``: it has the last ``size`` of them.

    >>> hr.sliding_count_windows(size=100, period=10)["how"].keep_last
    100
    """
    arguments = Arguments("sliding_count_windows")
    arguments.whole_number("size", size, least=1)
    arguments.whole_number("period", period, least=1)
    return WhereWhenHow(where=GlobalWindows(), when=Repeatedly(AfterCount(period)), how=accumulating(keep_last=size))
