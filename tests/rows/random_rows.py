"""Random pipelines of rows, alone, beside aggregations, and below and above them, in runs over landed files."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import assume, note
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation
from headrace.model.expressions.expr import Expr
from headrace.model.time import GLOBAL_WINDOW_END
from headrace.pipeline.rows import Every
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace_lab.reference import run_outputs
from headrace_lab.reference.elements import Pane
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.store import open_store
from tests.changelogs.signed_scenarios import signed_scenarios
from tests.process.random_runs import RecordFunction, Schedule, itself, recorded_of, run
from tests.process.several import output_of
from tests.process.wider import wider_scenarios
from tests.reading import read
from tests.reference.scenarios import Scenario

COLUMNS: Mapping[str, Expr] = {
    "user": col("user"),
    "word": col("word").upper(),
    "x": col("x") * 3 + 1,
    "part": col("part"),
    "large": col("x") * 3_000_000_000_000_000_000,
    "price": col("price"),
    "day": col("day"),
    "octets": col("octets"),
    "end": hr.coalesce(col("end"), False),
    "at": col("at"),
    "words": col("word").split("a"),
}
_FILTERS = st.sampled_from([None, None, col("x") > 0, col("end")])
_WAITING = st.one_of(
    st.just({}),
    st.sampled_from([None, hr.retracting("20us"), hr.retracting(None), hr.retracting()]).map(
        lambda how: {"when": hr.on_window_close(), "how": how}
    ),
)
_OF_PANES: Mapping[str, Expr] = {"total": col("total"), "many": col("n") > 1, "double": col("share") * 2}


@st.composite
def row_columns(draw: st.DrawFn) -> dict[str, Expr]:
    """Some of the columns."""
    names = draw(st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=5, unique=True))
    return {name: COLUMNS[name] for name in names}


@st.composite
def row_scenarios(draw: st.DrawFn, *, is_signed: bool = False) -> Scenario:
    """A pipeline of rows over input as wide as it gets, or over records of both signs; perhaps with other outputs.
    They leave with their epoch, or behind the watermark.
    """
    scenario = draw(signed_scenarios() if is_signed else wider_scenarios())
    whole = scenario.pipeline
    shared_parts: dict[str, Any] = {"union": whole.union, "deduplicate": whole.deduplicate, "executor": "local"}
    parts: dict[str, Any] = {"rows": draw(row_columns()), "filter": draw(_FILTERS), **draw(_WAITING)}
    rows = hr.Rows(**parts)
    try:
        if draw(st.booleans()):
            definition = hr.Pipeline("rows", whole.input, **parts, **shared_parts)
        else:
            outputs = _outputs(output_of(whole), rows, lists_of(whole))
            definition = hr.Pipeline("rows", whole.input, outputs=draw(outputs), **shared_parts)
    except PipelineError:
        assume(False)
        raise
    return Scenario(definition, scenario.epochs)


_TAKEN_BY = [col("x"), col("price"), col("word"), col("day"), -col("x"), col("part"), col("end")]
_TAKEN_BY_SOME = st.lists(st.sampled_from(_TAKEN_BY), min_size=1, max_size=2)
_TAKES = st.one_of(
    st.just(hr.newest()),
    st.just(hr.distinct()),
    st.sampled_from(_TAKEN_BY).map(hr.newest),
    st.builds(lambda column: hr.newest(column, deleted=col("end")), st.sampled_from([*_TAKEN_BY, None])),
    st.builds(lambda number, column: hr.top(number, by=column), st.integers(1, 3), _TAKEN_BY_SOME),
)


_MODULE = "tests.rows.group_functions"
_QUERIES = [
    "select * from rows",
    "select *, count(*) over (order by event_time) as place from rows",
    "select *, row_number() over () as place from rows",
    "select *, row_number() over (order by event_time desc) as place, count(*) over () as all_of_them from rows",
    "select *, lag(event_time) over (order by event_time) as before, lead(event_time, 2) over w as after from rows r "
    "window w as (order by event_time, hash(r))",
    "select *, sum(event_time - timestamptz '1970-01-01' > interval 3 microsecond) over "
    "(order by event_time range between interval 5 microsecond preceding and current row) as near from rows",
    "select count(*) as number, min(event_time) as event_time from rows",
    "select event_time, count(*) as number from rows where extract(microsecond from event_time) % 2 = 0 group by all",
    "select distinct * from rows",
    "select * from rows qualify rank() over (order by event_time desc) <= 2",
    "select * from rows order by event_time desc, hash(rows) limit 2",
    "with a as (select *, lag(event_time) over (order by event_time) as before from rows), b as (select *, sum(case "
    "when before is null or event_time > before + interval 2 microsecond then 1 else 0 end) over (order by event_time) "
    "as visit from a) select visit, min(event_time) as event_time, count(*) as number from b group by all",
    "select a.*, b.event_time as other from rows a join rows b on a.event_time > b.event_time",
    "select *, event_time as valid_from, lead(event_time) over (order by event_time) as valid_to from rows",
    "select string_agg(event_time::varchar, ',') as all_of_them, max(event_time) as event_time from rows",
]
_COMPUTED_TAKES = st.one_of(
    st.sampled_from(_QUERIES).map(hr.query),
    st.just(hr.function(f"{_MODULE}:times", {"event_time": datetime, "behind": int})),
    st.just(hr.function(f"{_MODULE}:count_rows", {"number": int})),
)


@st.composite
def group_scenarios(draw: st.DrawFn, *, is_signed: bool = False, is_computed: bool = False) -> Scenario:
    """A pipeline of rows of groups, whose keys, windows, triggers and accumulation are those of an aggregation.
    ``is_computed``: by a function, or by SQL.
    """
    scenario = draw(signed_scenarios() if is_signed else wider_scenarios())
    whole = scenario.pipeline
    shared_parts: dict[str, Any] = {"union": whole.union, "deduplicate": whole.deduplicate, "executor": "local"}
    parts: dict[str, Any] = {
        "null_keys": whole.null_keys,
        "key": whole.key,
        "where": whole.where,
        "when": whole.when,
        "how": whole.how,
    }
    if whole.how.accumulation is Accumulation.ACCUMULATING:
        parts["how"] = replace(whole.how, accumulation=Accumulation.RETRACTING)
    parts |= {
        "rows": draw(row_columns()),
        "take": draw(_COMPUTED_TAKES if is_computed else _TAKES),
        "filter": draw(_FILTERS),
    }
    parts["rows"] = {name: expr for name, expr in parts["rows"].items() if name not in whole.key}
    try:
        if draw(st.booleans()):
            definition = hr.Pipeline("rows", whole.input, **parts, **shared_parts, allow_finishing=True)
        else:
            outputs = {"rows": hr.Rows(**parts), "aggregated": output_of(whole)}
            if draw(st.booleans()):
                first = [] if is_computed else [*outputs["rows"].rows][:1]
                outputs["again"] = hr.Rows([*first, "event_time"], of="rows")
            lists = lists_of(whole)
            if lists and draw(st.booleans()):
                take = draw(st.sampled_from([hr.newest(), hr.distinct()]))
                outputs["lists"] = hr.Rows(lists, of="aggregated", take=take)
            if draw(st.booleans()):
                of_panes = {"take": draw(st.sampled_from([hr.newest(), hr.distinct(), hr.top(2, by="total")]))}
                outputs["of_panes"] = hr.Rows(["total"], of="aggregated", where=hr.FixedWindows("7us"), **of_panes)
            definition = hr.Pipeline("rows", whole.input, outputs=outputs, **shared_parts)
    except PipelineError:
        assume(False)
        raise
    return Scenario(definition, scenario.epochs)


def lists_of(pipeline: hr.Pipeline) -> dict[str, Expr]:
    """The lists that it gives as columns of rows, and how long they are."""
    names = [name for name, kind in pipeline.value_types.items() if isinstance(kind, hr.ListType)]
    return {name: col(name) for name in names} | {f"{name}_length": col(name).length() for name in names}


@st.composite
def _outputs(draw: st.DrawFn, totals: hr.Output, rows: hr.Rows, lists: Mapping[str, Expr]) -> dict[str, Any]:
    """Rows beside what is aggregated; rows of its panes; what is aggregated of rows; rows of rows."""
    outputs: dict[str, Any] = {"rows": rows, "aggregated": totals}
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from([*_OF_PANES]), min_size=1, unique=True))
        outputs["of_panes"] = hr.Rows({name: _OF_PANES[name] for name in names} | lists, of="aggregated")
    if draw(st.booleans()):
        first = next(iter(rows.rows))
        outputs["again"] = hr.Rows([first, "event_time"], of="rows", filter=col(first).is_not_null())
    if draw(st.booleans()):
        outputs["counted"] = hr.Output(
            of="rows",
            what={"n": hr.count()},
            where=hr.FixedWindows("7us"),
            when=hr.on_update(),
            how=hr.retracting(draw(st.sampled_from(["0s", "20us"]))),
        )
    return {name: outputs[name] for name in draw(st.permutations([*outputs]))}


Row = tuple[Any, ...]


def check_rows(
    scenario: Scenario,
    schedule: Schedule,
    executors: Sequence[str],
    spark: Any = None,
    *,
    make_records: RecordFunction = itself,
) -> None:
    """Each epoch of each output of rows gives the rows that the reference gives, with their signs; what stands is their
    sum; and a replay gives the same. ``make``: what sources make of a record.
    """
    pipeline = scenario.pipeline
    note(f"{pipeline!r}")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        landed_result = run(scenario, root, schedule, executors, spark)
        catalog = Catalog(open_store(root.as_uri()), pipeline.name)
        head = catalog.head().refs.get("main")
        if head is None:
            return
        expected = run_outputs(pipeline, recorded_of(catalog, head, landed_result, make_records))
        manifests = [*catalog.ancestry(head)][::-1]
        of_rows = {
            name: output_pipeline for name, output_pipeline in pipeline.by_output.items() if output_pipeline.rows
        }
        for name, output_pipeline in of_rows.items():
            found_rows = rows_by_epoch(output_pipeline, root, "main", len(manifests), name)
            assert found_rows == [Counter(map(shown_row, result.panes)) for result in expected[name]]
            check_standing(output_pipeline, root, name, found_rows)
            if output_pipeline.take == Every():
                late = read(output_pipeline, root.as_uri(), "late", "main", name)
                dropped_counts = [sum(drop.is_late for drop in result.drops) for result in expected[name]]
                assert Counter(late["epoch"].to_pylist()) == +Counter(dict(enumerate(dropped_counts)))
            for result, manifest in zip(expected[name], manifests, strict=True):
                _check_counts(
                    seen_by(manifest, name).counts,
                    result.panes,
                    has_state=bool(output_pipeline.take or output_pipeline.join),
                )
        if schedule.mode is Mode.MICRO_BATCH:
            options = RunOptions("replay", mode=Mode.REPLAY, branch="again", executor=executors[0])
            process(pipeline, root.as_uri(), options, spark=spark)
            for name, output_pipeline in of_rows.items():
                second_rows, first_rows = (
                    rows_by_epoch(output_pipeline, root, ref, len(manifests), name) for ref in ("again", "main")
                )
                assert second_rows == first_rows


def _check_counts(counts: Mapping[str, int], panes: Sequence[Pane], *, has_state: bool) -> None:
    added_rows = [pane for pane in panes if not pane.is_retraction]
    assert counts["panes"] == len(added_rows)
    assert counts["panes_late"] == sum(pane.timing == "LATE" for pane in added_rows)
    assert counts["retractions"] == len(panes) - len(added_rows)
    assert has_state or counts["state_rows"] == 0


def check_standing(pipeline: hr.Pipeline, root: Path, output: str, epochs: Sequence[Counter[Row]]) -> None:
    """``current`` has each row as often as it came more often than it was withdrawn."""
    summed_rows: Counter[Row] = Counter()
    for (*row, _, is_retraction), number in (item for epoch in epochs for item in epoch.items()):
        summed_rows[tuple(row)] += -number if is_retraction else number
    table = read(pipeline, root.as_uri(), "current", "main", output)
    standing = Counter(row[:-2] for row in rows_of(pipeline, table))
    assert standing == +summed_rows


def rows_by_epoch(pipeline: hr.Pipeline, root: Path, branch: str, epochs: int, output: str) -> list[Counter[Row]]:
    """The rows of each epoch: values, event time, timing, and whether they are withdrawn."""
    counts_by_epoch: list[Counter[Row]] = [Counter() for _ in range(epochs)]
    table = read(pipeline, root.as_uri(), "panes", branch, output)
    places = table.select(["epoch", "sequence"]).to_pylist()
    assert len({(place["epoch"], place["sequence"]) for place in places}) == len(places)
    for place, row in zip(places, rows_of(pipeline, table), strict=True):
        counts_by_epoch[place["epoch"]][row] += 1
    return counts_by_epoch


def rows_of(pipeline: hr.Pipeline, table: pa.Table) -> list[Row]:
    """The rows of a view as ``shown_row`` gives them."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.int64()))
    names = [*pipeline.value_types, "event_time", "timing", "is_retraction"]
    return [tuple(comparable(row[name]) for name in names) for row in table.to_pylist()]


def shown_row(pane: Pane) -> Row:
    """A row of the reference as readers see it."""
    values = tuple(map(comparable, pane.values))
    instant = int(pane.timestamp) if pane.timestamp < GLOBAL_WINDOW_END - 1 else None  # which no calendar has
    return (*values, instant, pane.timing.value, pane.is_retraction)


def comparable(value: Any) -> Any:
    """A value that equals itself: NaN by its name, -0.0 as 0.0, floats as far as executors must agree."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value + 0.0:.9g}")
    return tuple(map(comparable, value)) if isinstance(value, list | tuple) else value
