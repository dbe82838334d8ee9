"""One of several outputs of a pipeline: what is computed of the same records as its others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import PipelineError
from headrace.model.accumulation import How
from headrace.model.arguments import Arguments
from headrace.model.combiners import Aggregate
from headrace.model.expressions.coercion import Key
from headrace.model.expressions.expr import Expr
from headrace.model.suggestions import Suggesting, keywords
from headrace.model.triggers import Trigger
from headrace.model.triggers.leaves import Default
from headrace.model.windows import WindowFn
from headrace.pipeline.aggregation import Aggregation
from headrace.pipeline.expectations import Expectation
from headrace.pipeline.identity.names import NAME
from headrace.pipeline.loops.loop import OF_PANES, Loop, grouping
from headrace.pipeline.loops.step import LoopError
from headrace.pipeline.quality.limits import Limits
from headrace.pipeline.quality.usual import UsualCheck
from headrace.pipeline.sink import Sink, named_sinks
from headrace.pipeline.upstream import upstream_first

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
        set_(self, "expectations", given.several("expectations", expectations, Expectation, "expect(...)"))
        set_(self, "usual", given.several("usual", usual, UsualCheck, "usual_volume(within=2)"))
        set_(self, "sinks", named_sinks(given, sinks))
        set_(self, "limits", _limits(given, limits))
        set_(self, "description", given.instance("description", description, str, "text"))
        called = None if formerly is None else given.instance("formerly", formerly, str, 'a name, or ""')
        set_(self, "formerly", called)
        set_(self, "allow_finishing", given.flag("allow_finishing", allow_finishing))
        set_(self, "allow_double_counting", given.flag("allow_double_counting", allow_double_counting))


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


def named_outputs(given: Arguments, outputs: object) -> dict[str, Output]:
    """The ``outputs`` of a pipeline by name; none if it has one without a name. Raises PipelineError."""
    if outputs is None:
        return {}
    named = given.mapping("outputs", outputs, Output, '{"hourly": Output(...), "daily": Output(...)}', least=0)
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
    for name, value in own.items():
        if isinstance(value, Expr) or value:  # the truth of an expression is nobody's to tell
            raise given.wrong(name, value, "a pipeline with outputs= has it in each of them; write it into an Output")
