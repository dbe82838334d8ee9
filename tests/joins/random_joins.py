"""Random pipelines with joins, in runs over landed files: one or two joins of any kind, left and right sides with and
without withdrawals, aggregations and rows behind them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

import headrace as hr
from headrace import FileSource, col
from headrace.errors import PipelineError
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr
from headrace.pipeline.endpoints import Input
from headrace.pipeline.joins import Join
from headrace_lab.reference import Epoch
from tests.building import lengths
from tests.changelogs.signed_scenarios import signed_scenarios
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import _PARTS, ROWS, SCHEMA, Scenario, crowds

NAMES = ("right", "third")
_SIGNED_SCHEMA = {**SCHEMA, "sign": DataType.INT}
_ROWS = st.lists(ROWS, max_size=4)
_CROWDS = crowds(ROWS)
_SIGNS = st.sampled_from([1, 1, -1])
_JOIN_COLUMNS = st.sampled_from(
    [
        "user",
        ["user"],
        {"user": "user"},
        {"word": "user"},
        {col("word").upper(): "user", "x": "x"},
        {col("x") % 3: "x"},
    ]
)
_LATENESS = st.none() | lengths(0, 30)
_SPANS = st.tuples(st.integers(-15, 15), st.integers(0, 20)).map(lambda span: (f"{span[0]}us", f"{sum(span)}us"))
_WINDOWS = st.builds(hr.FixedWindows, lengths(1, 20), lengths(-5, 25)) | st.just(hr.CalendarWindows("day"))
_ORDERS = st.sampled_from([None, "x", "price", "part"])
_WHERE = st.sampled_from([None, None, col("x") > 0])
_RETRACTING = st.builds(hr.retracting, st.none() | lengths(0, 30))


@st.composite
def joins(draw: st.DrawFn, right: Input) -> Join:
    """One of any kind; a lookup of what goes by arrival. What comes along has names of its own."""
    names = draw(st.lists(st.sampled_from(["x", "word", "part", "price", "day"]), min_size=1, max_size=3, unique=True))
    options: dict[str, Any] = {
        "columns": {f"{right.name}_{name}": name for name in names},
        "outer": draw(st.booleans()),
        "lateness": draw(_LATENESS),
        "where": draw(_WHERE),
        "spread": draw(st.sampled_from([1, 1, 3])),
    }
    join_column, deleted_when = draw(_JOIN_COLUMNS), draw(st.sampled_from([None, col("end")]))
    if right.event_time.expr is None:
        return hr.lookup(right, join_column, order=draw(_ORDERS), deleted=deleted_when, **options)
    match draw(st.sampled_from(["within", "window", "next", "as_of", "as_of"])):
        case "within":
            return hr.within(right, join_column, between=draw(_SPANS), **options)
        case "window":
            return hr.same_window(right, join_column, window=draw(_WINDOWS), **options)
        case "next":
            return hr.next_event(right, join_column, within=draw(lengths(0, 20)), order=draw(_ORDERS), **options)
    age = draw(st.none() | lengths(0, 20))
    history = draw(st.none() | lengths(0, 20)) if age is None and right.source.changelog else None
    return hr.as_of(
        right, join_column, max_age=age, order=draw(_ORDERS), deleted=deleted_when, history=history, **options
    )


@st.composite
def _rights(draw: st.DrawFn, name: str) -> Input:
    if draw(st.integers(0, 2)) == 0:
        source = FileSource(f"{name}ly", "json", _SIGNED_SCHEMA, changelog=col("sign"))
    else:
        source = FileSource(f"{name}ly", draw(st.sampled_from(["json", "parquet"])), SCHEMA)
        if draw(st.integers(0, 3)) == 0:
            return source.arrival_time().named(name)
    return Input(source, draw(_PARTS["event_time"]), name)


def _columns(types: Mapping[str, DataType]) -> dict[str, Expr]:
    names = ("user", "x", "word", *(name for name in types if name.startswith(NAMES)))
    return {name: col(name) for name in names}


def _outputs(pipeline: hr.Pipeline) -> dict[str, Any]:
    """An output with a join of its own, beside one without; both have those of the pipeline."""
    first, *shared_columns = pipeline.join
    rows = {name: col(name) for name in ("user", "x", *(name for join in shared_columns for name in join.columns))}
    return {
        "rows": hr.Rows({**rows, **{name: col(name) for name in first.columns}}, join=[first]),
        "plain": hr.Rows(rows),
        "counted": hr.Output(
            key="user", what={"n": hr.count()}, where=pipeline.where, when=hr.on_update(), how=pipeline.how
        ),
    }


@st.composite
def join_scenarios(draw: st.DrawFn) -> Scenario:
    """A pipeline whose records meet rows of one or two further inputs."""
    scenario = draw(signed_scenarios())
    plain = scenario.pipeline
    parts: dict[str, Any] = {"union": ()}
    if draw(st.booleans()):
        parts["input"] = Input(FileSource("nowhere", "json", _SIGNED_SCHEMA), plain.event_time)
    names = NAMES[: draw(st.sampled_from([1, 1, 2]))]
    parts["join"] = tuple(draw(joins(draw(_rights(name)))) for name in names)
    try:
        definition = replace(plain, **parts, then=()) if draw(st.booleans()) else replace(plain, **parts)
        joined_kinds = definition.joined_schema
        kind = draw(st.sampled_from(["plain", "what", "rows", "groups", "outputs"]))
        number = next((name for name in joined_kinds if name.endswith("_x")), "x")
        if kind == "what":
            definition = replace(
                definition, what={**definition.what, "total": col(number).sum(), "met": col(number).count()}
            )
        elif kind == "rows":
            definition = hr.Pipeline(
                "scenario",
                definition.input,
                join=definition.join,
                rows=_columns(joined_kinds),
                filter=definition.filter,
                deduplicate=definition.deduplicate,
            )
        elif kind == "groups":
            take = draw(st.sampled_from([hr.newest(number), hr.distinct(), hr.top(2, by=number)]))
            some = {name: expr for name, expr in _columns(joined_kinds).items() if name != "user"}
            definition = hr.Pipeline(
                "scenario",
                definition.input,
                join=definition.join,
                deduplicate=definition.deduplicate,
                key="user",
                take=take,
                rows=some,
                where=definition.where,
                when=definition.when,
                how=definition.how,
                null_keys=definition.null_keys,
                allow_finishing=True,
            )
        elif kind == "outputs":
            definition = hr.Pipeline(
                "scenario",
                definition.input,
                join=definition.join[1:],
                outputs=_outputs(definition),
                executor="local",
                deduplicate=definition.deduplicate,
            )
    except PipelineError:
        assume(False)
        raise
    bundles = []
    for epoch in scenario.epochs:
        union: dict[str, Any] = {}
        for join in definition.joins_of_inputs:
            signs = {"sign": _SIGNS} if "sign" in join.right.source.types else {}
            rows = draw(_CROWDS if len(epoch.records) > 9 else _ROWS)
            union[join.name] = [{**row, **{name: draw(sign) for name, sign in signs.items()}} for row in rows]
        bundles.append(Epoch(epoch.processing_time, epoch.records, epoch.is_last, epoch.signals, union=union))
    return Scenario(definition, bundles)


_TIMES = ("event_time", "window_start", "window_end")


@st.composite
def _joins_of(draw: st.DrawFn, output: str, panes: Mapping[str, DataType]) -> Join:
    """A join with an ``output`` whose panes have these columns."""
    values = [name for name in panes if name not in _TIMES]
    names = draw(st.lists(st.sampled_from([*panes]), max_size=2, unique=True))
    options: dict[str, Any] = {
        "columns": {f"{output}_{name}": name for name in names},
        "outer": draw(st.booleans()),
        "lateness": draw(_LATENESS),
        "spread": draw(st.sampled_from([1, 1, 3])),
    }
    keys = {"user": "user"} if draw(st.booleans()) else {col("user").upper(): "user"}
    order = draw(st.sampled_from([None, *values]))
    match draw(st.sampled_from(["within", "window", "next", "as_of", "as_of"])):
        case "within":
            return hr.within(output, keys, between=draw(_SPANS), **options)
        case "window":
            return hr.same_window(output, keys, window=draw(_WINDOWS), **options)
        case "next":
            return hr.next_event(output, keys, within=draw(lengths(0, 20)), order=order, **options)
    age = draw(st.none() | lengths(0, 20))
    return hr.as_of(output, keys, max_age=age, order=order, **options)


@st.composite
def output_join_scenarios(draw: st.DrawFn) -> Scenario:
    """A pipeline whose outputs are joined: rows and panes, which may be withdrawn and NULL, with each other and with
    what was joined before; aggregations and rows of what comes out, and outputs of that.
    """
    scenario = draw(signed_scenarios() if draw(st.booleans()) else wider_scenarios())
    whole = scenario.pipeline
    timing: dict[str, Any] = {"where": whole.where, "when": whole.when, "how": draw(_RETRACTING)}
    outputs: dict[str, Any] = {
        "rows": hr.Rows(["user", "x", "word"], filter=draw(_WHERE)),
        "others": hr.Rows(["user", "x", "price"], filter=draw(_WHERE)),
        "counted": hr.Output(key="user", what={"n": hr.count(), "x": col("x").max()}, allow_finishing=True, **timing),
        "newest": hr.Rows(key="user", rows=["x"], take=hr.newest("x"), how=hr.retracting(None)),
    }
    common: dict[str, Any] = {"union": whole.union, "deduplicate": whole.deduplicate, "executor": "local"}
    try:
        for number in range(draw(st.integers(1, 2))):
            sides = hr.Pipeline("scenario", whole.input, outputs=outputs, **common).by_output
            left = draw(st.lists(st.sampled_from([*outputs]), min_size=1, max_size=2, unique=True))
            rights = draw(st.lists(st.sampled_from([*outputs]), min_size=1, max_size=2, unique=True))
            joins = [draw(_joins_of(right, sides[right].stages[-1].pane_schema)) for right in rights]
            columns = {name: col(name) for join in joins for name in join.columns}
            name, kind = f"joined{number}", draw(st.sampled_from(["rows", "rows", "what", "groups"]))
            if kind == "rows":
                outputs[name] = hr.Rows({"user": col("user"), "x": col("x"), **columns}, of=left, join=joins)
            elif kind == "what":
                some = {"n": hr.count(), "x": col("x").sum(), "words": hr.coalesce(*columns.values()).count()}
                what = some if columns else {"n": hr.count(), "x": col("x").sum()}
                outputs[name] = hr.Output(
                    of=left,
                    join=joins,
                    key="user",
                    what=what,
                    where=whole.where,
                    when=hr.on_update(),
                    how=draw(_RETRACTING),
                )
            else:
                outputs[name] = hr.Rows({"x": col("x"), **columns}, of=left, join=joins, key="user", take=hr.distinct())
        outputs["below"] = hr.Output(
            of="joined0",
            key="user",
            what={"n": hr.count()},
            where=hr.FixedWindows("7us"),
            when=hr.on_update(),
            how=hr.retracting("9us"),
        )
        pipeline = hr.Pipeline("scenario", whole.input, outputs=outputs, **common)
    except PipelineError:
        assume(False)
        raise
    return Scenario(pipeline, scenario.epochs)
