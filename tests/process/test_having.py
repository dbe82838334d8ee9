"""Columns of results and ``having`` in runs: what leaves is what would leave without, filtered, and state does not know
of it (semantics 8.4, 9.10).
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import How, Pipeline, accumulating, col, count, discarding, retracting
from headrace.errors import AuditFailedError, ChangedPipelineError, IntegerOverflowError
from headrace.ext.stores import open_store
from headrace.testing import TemporaryDeployment
from headrace_lab.catalog_checks import check_catalog
from tests.process.clicks import clicks, land
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.late_clicks import START, Live, pipeline
from tests.process.outputs import line
from tests.reading import read

pytestmark = pytest.mark.slow  # whole runs

AGGREGATES = {"clicks": count(), "spent": col("price").sum()}
RATES = {**AGGREGATES, "each": col("spent") / col("clicks"), "since": col("window_start")}
CONDITION = (col("each") > 8) & (col("clicks") < 4)

Row = Mapping[str, Any]


def rows(pipeline: Pipeline, root: Path, view: str) -> list[Row]:
    """The rows of a view without their places in an epoch, of which some are not seen."""
    return [{**row, "sequence": 0} for row in read(pipeline, root.as_uri(), view, "main").to_pylist()]


def fulfil(row: Row) -> bool:
    return row["each"] is not None and row["each"] > 8 and row["clicks"] < 4


@on_both
@pytest.mark.parametrize(
    "how", [retracting("1d"), accumulating("1d"), discarding("1d")], ids=lambda how: how.accumulation
)
def test_what_leaves_is_what_there_would_be_filtered(
    executor: ExecutorUnderTest, how: How, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")  # files are cut by tasks
    pipeline_without = clicks()
    common_parts = {
        "name": "clicks",
        "input": pipeline_without.input,
        "key": "user",
        "where": pipeline_without.where,
        "when": pipeline_without.when,
    }
    definitions = {
        "all": Pipeline(**common_parts, how=how, what=RATES),
        "some": Pipeline(**common_parts, how=how, what=RATES, having=CONDITION),
    }
    for name, computed_by in (("all", LOCAL), ("some", executor)):
        land(tmp_path / name)
        TemporaryDeployment(tmp_path / name).run(
            definitions[name], executor=computed_by.executor, at=START, publish=False
        )
    every, some = (rows(each, tmp_path / name, "panes") for name, each in definitions.items())
    assert 0 < sum(map(fulfil, every)) < len(every)
    for row in every:
        assert row["each"] == (row["spent"] / row["clicks"] if row["clicks"] else None)
        assert row["since"] == row["window_start"]
    kept_rows = [row for row in some if how.accumulation != "ACCUMULATING" or not row["is_retraction"]]
    assert kept_rows == [row for row in every if fulfil(row)]
    if how.accumulation != "DISCARDING":
        current = [row for row in rows(definitions["all"], tmp_path / "all", "current") if fulfil(row)]
        assert rows(definitions["some"], tmp_path / "some", "current") == current
    catalogs = [hr.open((tmp_path / name).as_uri())["clicks"].catalog for name in definitions]
    progress = [[{**manifest.progress, "executor": ""} for manifest in line(catalog)] for catalog in catalogs]
    assert progress[0] == progress[1], "clocks and dues know nothing of it"
    if how.accumulation != "ACCUMULATING":  # where windows remember nothing without it
        state = [[file.sha256 for layer in line(own)[-1].tables["state"] for file in layer.files] for own in catalogs]
        assert state[0] == state[1], "nor does state, to the byte"
    check_catalog(open_store((tmp_path / "some").as_uri()), "clicks")


def test_expectations_and_conditions_of_readers_read_columns_of_results(tmp_path: Path) -> None:
    land(tmp_path)
    expecting = hr.expect("column_values_to_be_between", column="each", max_value=3)
    with pytest.raises(AuditFailedError, match="each"):
        LOCAL.run(_clicks_with_rates(expectations=[expecting]), tmp_path.as_uri())
    reader = hr.open(tmp_path.as_uri())["clicks"]
    found_rows = reader.current(at="main", where=col("each") > 8, columns=["each"]).to_arrow()["each"].to_pylist()
    assert found_rows
    assert min(found_rows) > 8


def _clicks_with_rates(**parts: Any) -> Pipeline:
    plain = clicks()
    common_parts = {
        "key": "user",
        "what": RATES,
        "where": plain.where,
        "when": plain.when,
        "how": retracting("1d"),
        **parts,
    }
    return Pipeline("clicks", plain.input, executor="local", **common_parts)


def test_a_value_that_leaves_its_type_says_of_which_column_and_row(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    huge = _clicks_with_rates(what={**AGGREGATES, "huge": col("spent") * 2**61}, having=col("huge") < 0)
    with pytest.raises(IntegerOverflowError) as error:
        LOCAL.run(huge, tmp_path.as_uri(), publish=False)
    assert str(error.value).startswith("column 'huge' of key user='u")
    assert "(spent * 2305843009213693952) leaves 64 bits" in str(error.value)
    condition = _clicks_with_rates(having=col("spent") * 2**61 < 0)
    with pytest.raises(IntegerOverflowError, match=r"having of key user='u"):
        LOCAL.run(condition, tmp_path.as_uri(), publish=False)


def test_a_new_column_is_null_in_what_stands_and_retractions_repeat_that(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline(how=retracting("1d")))
    live.land(("ann", 0.1, 4), ("bob", 0.1, 6))
    live.process()
    live.land(("ann", 0.2, 2))
    rated_live = Live(
        tmp_path, pipeline(how=retracting("1d"), what={**AGGREGATES, "each": col("spent") / col("clicks")})
    )
    with pytest.raises(ChangedPipelineError, match="column 'each' of aggregation 1"):
        rated_live.process()
    rated_live.process(allow_new_aggregates=True)
    assert [row[-1] for row in rated_live.current()] == [3.0, None]
    newest = [(pane["each"], pane["is_retraction"]) for pane in rated_live.panes() if pane["epoch"] == 1]
    assert newest == [(None, True), (3.0, False)]
    rated_live.check()
    renamed_live = Live(
        tmp_path,
        pipeline(
            how=retracting("1d"),
            what={"clicks": count(), "paid": col("price").sum(), "mean": col("paid") / col("clicks")},
            renamed={"spent": "paid", "each": "mean"},
        ),
    )
    live.write(3, ("ann", 0.3, 9))
    renamed_live.process()
    newest = [
        (pane["paid"], pane["mean"], pane["is_retraction"]) for pane in renamed_live.panes() if pane["epoch"] == 2
    ]
    assert newest == [(6, 3.0, True), (15, 5.0, False)]
    renamed_live.check()


@pytest.mark.parametrize("how", [retracting("30m"), accumulating("30m")], ids=lambda how: how.accumulation)
def test_a_patch_puts_rows_that_left_in_place_of_rows_that_left(how: How, tmp_path: Path) -> None:
    """What came too late for main lets a row of the branch fulfil the condition, and another one no longer."""
    live = Live(tmp_path, pipeline(how=how, having=(col("spent") > 5) & (col("spent") < 50)))
    live.land(("ann", 0.1, 1), ("bob", 0.2, 10), ("cyd", 0.3, 20))
    live.land(("ann", 5.5, 10))
    live.land(("ann", 0.5, 7), ("bob", 0.6, 1000))
    assert live.process().counts["late_dropped"] == 2
    live.backfill()
    assert [row[0] for row in live.current()] == ["ann", "bob", "cyd"]
    live.patch()
    assert [(row[0], row[1] - START, row[-1]) for row in live.current()] == [
        ("ann", timedelta(0), 8),
        ("ann", timedelta(hours=5), 10),
        ("cyd", timedelta(0), 20),
    ]
    live.check()


def test_a_run_with_another_condition_is_refused_and_a_backfill_computes_it(tmp_path: Path) -> None:
    live = Live(tmp_path, pipeline(how=retracting("1d"), having=col("spent") > 5))
    live.land(("ann", 0.1, 4), ("bob", 0.1, 6))
    live.process()
    for condition in (None, col("spent") > 3):
        changed_live = Live(tmp_path, pipeline(how=retracting("1d"), having=condition))
        with pytest.raises(ChangedPipelineError, match="and rows stand, or are withheld, by what it was"):
            changed_live.process()
    changed_live.backfill()
    changed_live.history.promote("fix")
    assert [row[0] for row in changed_live.current("main")] == ["ann", "bob"]
