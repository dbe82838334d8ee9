"""Runs that continue from a snapshot of another definition: its state is migrated, as ``headrace plan`` says."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col, count
from headrace.errors import HeadraceError
from headrace.read.views.columns import View
from headrace.read.views.conditions import QueryError
from headrace.runs.maintenance import check, expire_snapshots, keep_rule
from headrace.runs.options import RunOptions
from headrace.runs.restore import ChangedPipelineError
from headrace.testing.deployment import TemporaryDeployment
from headrace.testing.results import Row
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import Fault, Operation, disturb_stores
from tests.process.executors import ExecutorUnderTest, on_spark

START = datetime(2026, 3, 1, tzinfo=UTC)
SOURCE = hr.json("landing/clicks", {"user": str, "page": str, "at": hr.DataType.TIMESTAMP, "amount": int})
WIDER = hr.json("landing/clicks", {"user": str, "page": str, "at": hr.DataType.TIMESTAMP, "amount": int, "price": int})
EVERY = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
WHAT = {
    "clicks": count(),
    "amount": col("amount").sum(),
    "mean": col("amount").mean(),
    "most": col("amount").max(),
    "pages": col("page").collect(),
}
PER_DAY = hr.Aggregation(
    key={"page": col("page")}, what={"users": count(), "total": col("amount").sum()}, where=hr.FixedWindows("4h")
)


def clicks(source: hr.FileSource = SOURCE, **parts: Any) -> Pipeline:
    common_parts: dict[str, Any] = {
        "key": {"user": col("user"), "page": col("page")},
        "what": WHAT,
        "where": hr.FixedWindows("1h"),
        "when": EVERY,
        "how": hr.retracting("2h"),
        **parts,
    }
    return Pipeline("clicks", source.event_time("at", bound="30m"), **common_parts)


def name_aggregates(names: Mapping[str, str], what: Mapping[str, hr.Aggregate] = WHAT) -> dict[str, hr.Aggregate]:
    return {names.get(name, name): aggregate for name, aggregate in what.items()}


def records(part: int) -> list[dict[str, object]]:
    """Some of an hour and the ones around it, so that windows of the part before are still open, and some are late."""
    dice = Random(part)
    return [
        {
            "user": dice.choice(["ann", "bob", "eve"]),
            "page": dice.choice("xy"),
            "at": (START + timedelta(minutes=60 * part + dice.randrange(-200, 90))).isoformat(),
            "amount": dice.randrange(100),
            "price": dice.randrange(100),
        }
        for _ in range(40)
    ]


def deploy_pipelines(folder: Path, *pipelines: Pipeline, allow_new_aggregates: bool = False) -> TemporaryDeployment:
    """Each runs over a part of the input, in their order."""
    own_deployment = TemporaryDeployment(folder)
    for number, pipeline in enumerate(pipelines):
        run(own_deployment, pipeline, number, allow_new_aggregates=allow_new_aggregates)
    return own_deployment


def run(deployment: TemporaryDeployment, pipeline: Pipeline, part: int, **options: Any) -> Any:
    deployment.land(clicks(WIDER), *records(part))
    return deployment.run(pipeline, at=clock(part), **options)


def clock(part: int) -> datetime:
    return START + timedelta(days=1, hours=part)


def read_rows(
    deployment: TemporaryDeployment, pipeline: Pipeline, names: Mapping[str, str] | None = None
) -> dict[str, list[Row]]:
    """All that readers see, with columns called by ``names``."""
    given_names = names or {}
    return {
        view: sorted(
            (
                {given_names.get(name, name): value for name, value in row.items()}
                for row in deployment.read(pipeline, view)
            ),
            key=lambda row: str(sorted(row.items())),
        )
        for view in ("current", "panes", "late", "rejected")
    }


def catalog(deployment: TemporaryDeployment) -> Catalog:
    return Catalog(open_store(deployment.root), "clicks")


def main(deployment: TemporaryDeployment) -> str:
    return catalog(deployment).head().refs["main"]


NAMES = {"most": "largest", "amount": "sum_of_amounts", "user": "visitor"}
CHAIN_PARTS = {"then": [PER_DAY]}
RENAMINGS: list[tuple[Pipeline, Pipeline, dict[str, str]]] = [
    (
        clicks(),
        clicks(
            key={"visitor": col("user"), "page": col("page")},
            what=name_aggregates(NAMES),
            renamed=NAMES,
        ),
        NAMES,
    ),
    (
        clicks(how=hr.accumulating("2h"), where=hr.Sessions("20m")),
        clicks(
            how=hr.accumulating("2h"),
            where=hr.Sessions("20m"),
            what=name_aggregates({"clicks": "n"}),
            renamed={"clicks": "n"},
        ),
        {"clicks": "n"},
    ),
    (  # what the first aggregation calls otherwise the second reads by its new name
        clicks(**CHAIN_PARTS),
        clicks(
            key={"user": col("user"), "place": col("page")},
            what=name_aggregates({"amount": "cents"}),
            renamed={"amount": "cents", "page": "place"},
            then=[
                hr.Aggregation(
                    key={"page": col("place")},
                    what={"users": count(), "sum": col("cents").sum()},
                    where=hr.FixedWindows("4h"),
                    renamed={"total": "sum"},
                )
            ],
        ),
        {"total": "sum"},
    ),
    (  # state that is the last elements themselves
        clicks(how=hr.accumulating("2h", keep_last=2)),
        clicks(
            how=hr.accumulating("2h", keep_last=2),
            what=name_aggregates({"mean": "average"}),
            renamed={"mean": "average"},
        ),
        {"mean": "average"},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "names"), RENAMINGS)
def test_with_other_names_a_run_gives_what_it_gives_with_the_old_ones(
    tmp_path: Path, old: Pipeline, new: Pipeline, names: Mapping[str, str]
) -> None:
    undisturbed_deployment, migrated_deployment = (
        deploy_pipelines(tmp_path / "a", old, old, old),
        deploy_pipelines(tmp_path / "b", old, new, new),
    )
    late = {name: new_name for name, new_name in zip(old.key, new.key, strict=True) if name != new_name}
    expected = read_rows(undisturbed_deployment, old, names)
    expected["late"] = read_rows(undisturbed_deployment, old, late)["late"]
    assert expected["late"]
    assert any(row["is_retraction"] for row in expected["panes"]) or old.how.accumulation != "RETRACTING"
    assert read_rows(migrated_deployment, new) == expected


MORE_AGGREGATES = {
    "most": col("amount").max(),
    "dear": col("price").sum(),
    "dearest": col("price").max(),
    "clicks": count(),
}
"""Of the aggregates of ``WHAT`` some are gone, others come, and those that stay stand in another order."""


def pick_columns(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    return sorted(
        ({name: row[name] for name in row if name in names} for row in rows), key=lambda row: str(sorted(row.items()))
    )


@pytest.mark.slow
def test_what_is_added_knows_what_is_read_from_now_on_and_disturbs_nothing_else(tmp_path: Path) -> None:
    old, new = clicks(), clicks(WIDER, what=MORE_AGGREGATES)
    pipeline_without = clicks(what={"clicks": count(), "most": col("amount").max()})
    migrated_deployment = deploy_pipelines(tmp_path / "a", old, new, new, allow_new_aggregates=True)
    undisturbed_deployment = deploy_pipelines(tmp_path / "b", pipeline_without, pipeline_without, pipeline_without)
    shared_names = [
        name
        for name in read_rows(undisturbed_deployment, pipeline_without)["panes"][0]
        if name not in MORE_AGGREGATES or name in pipeline_without.what
    ]
    found_rows, expected = read_rows(migrated_deployment, new), read_rows(undisturbed_deployment, pipeline_without)
    for view in ("current", "panes", "late"):
        assert pick_columns(found_rows[view], shared_names) == pick_columns(expected[view], shared_names)

    prices: dict[tuple[Any, ...], list[int]] = {}
    for record in records(1) + records(2):
        hour = datetime.fromisoformat(str(record["at"])).replace(minute=0)
        prices.setdefault((record["user"], record["page"], hour), []).append(int(str(record["price"])))
    late = {(row["user"], row["page"], row["window_start"]) for row in found_rows["late"]}
    both = 0
    for row in found_rows["current"]:
        window = row["user"], row["page"], row["window_start"]
        if not row["epoch"]:
            assert (row["dear"], row["dearest"]) == (None, None), "a pane from before"
        elif window not in prices:
            assert (row["dear"], row["dearest"]) == (0, None), "of elements from before alone: of none"
        elif window not in late:
            both += row["clicks"] > len(prices[window])
            assert (row["dear"], row["dearest"]) == (sum(prices[window]), max(prices[window]))
    assert both, "windows with elements from before and after"
    withdrawn = [row for row in found_rows["panes"] if row["is_retraction"] and row["epoch"] == 1]
    assert any(row["dear"] is None for row in withdrawn), "a pane is withdrawn as it was"


@on_spark
def test_on_spark_state_is_migrated_as_it_is_here(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    old, new, _ = RENAMINGS[0]
    own_deployment, other_deployment = deploy_pipelines(tmp_path / "a", old, new), deploy_pipelines(tmp_path / "b", old)
    other_deployment.land(clicks(WIDER), *records(1))
    options = RunOptions("spark", publish=True)
    assert executor.process(new, other_deployment.root, options, now=lambda: clock(1)).epochs == (1,)
    assert read_rows(other_deployment, new) == read_rows(own_deployment, new)
    for view in (View.CURRENT, View.PANES):
        found_view = hr.open(other_deployment.root)["clicks"].read(view)
        frame = found_view.to_spark(executor.spark)
        collected_rows = [row.asDict() for row in frame.select("visitor", "largest").collect()]
        expected = found_view.to_arrow().select(["visitor", "largest"]).to_pylist()
        assert sorted(map(str, collected_rows)) == sorted(map(str, expected))


INCOMPATIBLE_PAIRS: list[tuple[Pipeline, Pipeline, str]] = [
    (clicks(), clicks(what={**WHAT, "more": count()}), "--allow-new-aggregates"),
    (clicks(), clicks(key={"visitor": col("user"), "page": col("page")}), "key has changed"),
    (clicks(), clicks(what={**WHAT, "most": col("amount").min()}), "aggregate 'most' has changed"),
    (clicks(), clicks(when=hr.Default()), "when"),
    (
        clicks(**CHAIN_PARTS),
        clicks(then=[hr.Aggregation(key=None, what={"users": count(), "n": count()}, where=hr.FixedWindows("4h"))]),
        "what it has never seen may be withdrawn",
    ),
    (
        clicks(how=hr.accumulating("2h", keep_last=2)),
        clicks(how=hr.accumulating("2h", keep_last=2), what={"clicks": count()}),
        "aggregate 'amount' is gone",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "message"), INCOMPATIBLE_PAIRS)
def test_what_is_not_told_or_cannot_be_migrated_is_refused(
    tmp_path: Path, old: Pipeline, new: Pipeline, message: str
) -> None:
    deployment = deploy_pipelines(tmp_path, old)
    state_before = read_rows(deployment, old), main(deployment)
    with pytest.raises(ChangedPipelineError, match=message) as error:
        run(deployment, new, 1)
    assert "headrace backfill clicks" in str(error.value)
    assert (read_rows(deployment, old), main(deployment)) == state_before


@pytest.mark.slow
def test_a_run_that_fails_at_any_put_leaves_the_old_snapshot_and_another_one_migrates(tmp_path: Path) -> None:
    old, new, _ = RENAMINGS[0]
    deployment_before = deploy_pipelines(tmp_path / "before", old)
    deployment_before.land(clicks(WIDER), *records(1))
    puts: list[str] = []

    def run_until(deployment: TemporaryDeployment, number: int | None) -> None:
        def plan(operation: Operation) -> Fault | None:
            if operation.kind in {"put", "create"}:
                puts.append(operation.path)
                return Fault.FAIL if len(puts) - 1 == number else None
            return None

        puts.clear()
        with disturb_stores(plan):
            deployment.run(new, at=clock(1))

    def copy_deployment(name: str) -> TemporaryDeployment:
        return TemporaryDeployment(shutil.copytree(deployment_before.folder, tmp_path / name))

    undisturbed_copy = copy_deployment("undisturbed")
    run_until(undisturbed_copy, None)
    places = len(puts)
    panes = hr.open(deployment_before.root)["clicks"].panes().to_arrow().to_pylist()
    expected = undisturbed_copy.read(new, "panes")
    assert any("state-migrated" in path for path in puts)
    for number in range(places):
        deployment = copy_deployment(str(number))
        head = main(deployment)
        with suppress(HeadraceError):  # what is a mere hint may fail
            run_until(deployment, number)
        assert hr.open(deployment.root)["clicks"].panes(at=head).to_arrow().to_pylist() == panes
        deployment.run(new, at=clock(1))
        assert deployment.read(new, "panes") == expected, puts[-1]


@pytest.mark.slow
def test_snapshots_of_every_definition_stay_what_they_were(tmp_path: Path) -> None:
    """A name that comes back means what it means now; what it meant then stays with the snapshots of then."""
    first, second = clicks(), clicks(what=name_aggregates({"most": "peak"}), renamed={"most": "peak"})
    third = clicks(
        what={"peak": col("amount").max(), "most": count()},
        key={"who": col("user"), "page": col("page")},
        renamed={"user": "who"},
    )
    deployment = TemporaryDeployment(tmp_path)
    seen_rows: list[tuple[str, Pipeline, dict[str, list[Row]]]] = []
    for number, pipeline in enumerate((first, second, third, third)):
        run(deployment, pipeline, number, allow_new_aggregates=True)
        seen_rows.append((main(deployment), pipeline, read_rows(deployment, pipeline)))
    reader = hr.open(deployment.root)["clicks"]
    for snapshot, _, expected in seen_rows:
        for view, found_rows in expected.items():
            second_rows = reader.read(view, at=snapshot).to_arrow().to_pylist()
            assert sorted(map(str, second_rows)) == sorted(map(str, found_rows))
    panes = seen_rows[-1][2]["panes"]
    assert {(row["epoch"] > 1, row["most"] is None) for row in panes if not row["is_retraction"]} == {
        (False, True),
        (True, False),
    }
    assert all(row["peak"] is not None and row["who"] for row in panes)
    assert {row["who"] for row in seen_rows[-1][2]["late"]} <= {"ann", "bob", "eve"}

    output_diff = reader.diff(seen_rows[1][0], seen_rows[2][0]).output
    assert not output_diff.is_comparable, "another key"
    assert reader.diff(seen_rows[0][0], seen_rows[1][0]).output.columns.only_after == {"peak": "int64"}
    expire_snapshots(catalog(deployment), keep_rule(1))
    assert check(catalog(deployment), deep=True).problems == ()
    assert read_rows(deployment, third) == seen_rows[-1][2]


@pytest.mark.slow
def test_layers_of_both_definitions_become_one(tmp_path: Path) -> None:
    """Merges of ``current`` and of state, with files that call columns otherwise."""
    old, new, names = RENAMINGS[0]
    found_rows = []
    for folder, second in (("a", old), ("b", new)):
        deployment = TemporaryDeployment(tmp_path / folder)
        for number, record in enumerate(records(0)[:11] + records(1)[:6]):
            deployment.land(clicks(WIDER), record)
            if number == 10:
                deployment.run(old, at=clock(0), files_per_epoch=1)
        deployment.run(second, at=clock(1), files_per_epoch=1)
        found_rows.append(read_rows(deployment, second, names if second is old else None))
    expected, migrated_rows = found_rows
    assert migrated_rows["current"] == expected["current"]
    assert migrated_rows["panes"] == expected["panes"]


@pytest.mark.slow
def test_an_audit_sees_rows_from_before_as_readers_do_and_files_are_refused(tmp_path: Path) -> None:
    old, names = clicks(), {"most": "peak", "user": "who"}
    requested_expectations = [
        hr.expect("column_values_to_not_be_null", view=view, column="peak") for view in ("panes", "current")
    ]
    new = clicks(
        key={"who": col("user"), "page": col("page")},
        what=name_aggregates(names),
        renamed=names,
        expectations=requested_expectations,
    )
    deployment = TemporaryDeployment(tmp_path)
    assert run(deployment, old, 0, publish=False).published is None
    audit = run(deployment, new, 1).audit
    assert audit.success, "of rows that both definitions made"
    reader = hr.open(deployment.root)["clicks"]
    assert {row["epoch"] for row in reader.panes().to_arrow().to_pylist()} == {0, 1}
    with pytest.raises(QueryError, match="peak is most"):
        reader.panes().files()
    assert reader.rejected().files() == []
