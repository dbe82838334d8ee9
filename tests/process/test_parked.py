"""An output that fails is parked: others go on, and it catches up as if nothing had happened."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline
from headrace.errors import DeadLetterBudgetError, OutputHeldError, PipelineError, RunOptionsError
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from tests.process.executors import LOCAL, ExecutorUnderTest
from tests.process.fragile import Fragile, breaking, land_with_ids
from tests.process.outputs import catalog_of, digests, line

FIRST, FILES_BEFORE, FILES_IN_ALL = 5, 8, 12
"""The epoch in which the output fails, and how many files land before and after it is mended."""


def stands(manifest: hr.types.Manifest, output: str = "visits") -> Mapping[str, Any]:
    """What a snapshot says of where an output stands."""
    own: Mapping[str, Any] = manifest.progress["outputs"][output]
    return own


def assert_same(root: Path, whole: Path, shop: Pipeline) -> None:
    """All outputs under ``root`` are byte for byte what they are under ``whole``, epoch by epoch."""
    ours, theirs = catalog_of(root), catalog_of(whole)
    for output in shop.outputs:
        for log in ("panes", "late"):
            assert digests(ours, f"{output}/{log}") == digests(theirs, f"{output}/{log}"), (output, log)
        mine, own = (
            hr.open(folder.as_uri())["shop"][output].current(at="main").to_arrow().to_pylist()
            for folder in (root, whole)
        )
        assert mine == own
        keys = [n for n in line(theirs)[-1].counts if n.startswith(f"{output}/") and not n.endswith("/state_rows")]
        totals = [{key: sum(m.counts[key] for m in line(folder)) for key in keys} for folder in (ours, theirs)]
        assert totals[0] == totals[1]
    letters = [
        sorted(map(str, hr.open(folder.as_uri())["shop"]["visits"].rejected(at="main").to_arrow().to_pylist()))
        for folder in (root, whole)
    ]
    assert letters[0] == letters[1]
    check_catalog(open_store(root.as_uri()), "shop")


@pytest.fixture
def mended_file(tmp_path: Path) -> Path:
    return tmp_path / "mended"


class UndisturbedRun:
    """Roots whose pipeline never failed; each is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def root(self, *, telling: bool = False) -> Path:
        root = self._folder / str(telling)
        if not root.exists():
            land_with_ids(root, 0, FILES_IN_ALL)
            mended_path = root / "mended"
            mended_path.touch()
            LOCAL.run(breaking(mended_path, telling=telling), root.as_uri(), publish=False)
        return root


@pytest.fixture(scope="module")
def undisturbed_run(tmp_path_factory: pytest.TempPathFactory) -> UndisturbedRun:
    return UndisturbedRun(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")  # files are cut by tasks


@pytest.mark.usefixtures("one_task")
@pytest.mark.parametrize(
    ("executor", "telling"),
    [
        pytest.param("local", False, id="all-local"),
        pytest.param("local", True, id="deduplicated-local"),
        pytest.param("spark", True, id="deduplicated-spark", marks=pytest.mark.spark),
    ],
    indirect=["executor"],
)
def test_an_output_that_fails_catches_up_as_if_it_had_not(
    executor: ExecutorUnderTest, telling: bool, undisturbed_run: UndisturbedRun, tmp_path: Path, mended_file: Path
) -> None:
    shop, root = breaking(mended_file, telling=telling), tmp_path / "root"
    whole = undisturbed_run.root(telling=telling)
    land_with_ids(root, 0, FILES_BEFORE)
    result = executor.run(shop, root.as_uri(), publish=False)
    assert [*result.epochs] == [*range(FILES_BEFORE)]
    catalog = catalog_of(root)
    manifest_before, *_, head = line(catalog)[FIRST - 1 :]
    assert (stands(head)["epoch"], stands(head)["snapshot"]) == (FIRST - 1, manifest_before.snapshot_id)
    assert stands(head)["parked"]["code"] == "config.pipeline"
    assert "is too much to add" in stands(head)["parked"]["message"]
    assert head.tables["visits/state"] == manifest_before.tables["visits/state"]
    assert head.tables["visits/current"] == manifest_before.tables["visits/current"]
    assert "parked" not in stands(head, "hourly")
    assert "parked" not in stands(manifest_before)

    second_result = executor.run(shop, root.as_uri(), publish=False)
    assert second_result.epochs == ()
    assert any("visits is parked since epoch 5" in warning for warning in second_result.warnings)

    mended_file.touch()
    land_with_ids(root, FILES_BEFORE, FILES_IN_ALL)
    executor.run(shop, root.as_uri(), publish=False)
    assert "parked" not in stands(line(catalog)[-1])
    assert_same(root, whole, shop)


def test_it_catches_up_though_nothing_new_has_landed(
    executor: ExecutorUnderTest, tmp_path: Path, mended_file: Path
) -> None:
    shop = breaking(mended_file)
    land_with_ids(tmp_path, 0, FILES_BEFORE)
    executor.run(shop, tmp_path.as_uri(), publish=False)
    mended_file.touch()
    result = executor.run(shop, tmp_path.as_uri(), publish=False)
    assert [*result.epochs] == [FILES_BEFORE]
    (*_, head) = line(catalog_of(tmp_path))
    assert "parked" not in stands(head)
    assert (head.counts["input_files"], head.counts["visits/input_files"]) == (0, FILES_BEFORE - FIRST)
    assert executor.run(shop, tmp_path.as_uri(), publish=False).epochs == ()


def test_it_fails_again_later(executor: ExecutorUnderTest, tmp_path: Path, mended_file: Path) -> None:
    shop, root = breaking(mended_file), tmp_path / "root"
    for last in (6, 7, 8):
        land_with_ids(root, 0, last)
        mended_file.unlink(missing_ok=True)
        executor.run(shop, root.as_uri(), publish=False)
        assert stands(line(catalog_of(root))[-1])["epoch"] == last - 2 if last == 6 else True
        mended_file.touch()
        executor.run(shop, root.as_uri(), max_epochs=1, publish=False)
    assert "parked" not in stands(line(catalog_of(root))[-1])


def test_an_output_that_reads_another_fails_again_and_the_other_goes_on(
    executor: ExecutorUnderTest, tmp_path: Path, mended_file: Path
) -> None:
    each: dict[str, Any] = {"key": "user", "when": hr.on_update(), "how": hr.retracting("1d")}
    paid_output = hr.Output(what={"price": hr.col("price").sum()}, where=hr.FixedWindows("1h"), **each)
    most = hr.col("price").combine(Fragile(str(mended_file), least=100))
    shop = Pipeline(
        "shop",
        hr.json("landing/paid", {"user": str, "at": datetime, "price": int}, max_files=1).event_time("at", bound="1h"),
        outputs={
            "paid": paid_output,
            "all": hr.Output(of="paid", what={"price": most}, where=hr.GlobalWindows(), **each),
        },
    )

    def run(root: Path, number: int, price: int | None) -> tuple[Sequence[int], bool]:
        if price is not None:
            (root / "landing" / "paid").mkdir(parents=True, exist_ok=True)
            record = {"user": "ada", "at": f"2026-11-20T{number:02}:00:00Z", "price": price}
            (root / "landing" / "paid" / f"{number}.jsonl").write_text(json.dumps(record))
        result = executor.run(shop, root.as_uri(), publish=False)
        return result.epochs, "parked" in stands(line(catalog_of(root))[-1], "all")

    ours, whole = tmp_path / "ours", tmp_path / "whole"
    prices = [5, 100, None, 7, None, 1]
    assert [run(ours, number, price) for number, price in enumerate(prices)] == [
        ((0,), False), ((1,), True), ((), True), ((2,), True), ((), True), ((3,), True)
    ]  # fmt: skip
    mended_file.touch()
    assert run(ours, 6, None) == ((4,), False)
    for number, price in enumerate(prices):
        run(whole, number, price)
    for log in (f"{output}/panes" for output in shop.outputs):
        mine, own = ([files for files in digests(catalog_of(root), log) if files] for root in (ours, whole))
        assert mine == own, log
        assert len(own) == 4


@set_sizes(parked_epochs=2)
def test_others_go_on_only_for_so_long(executor: ExecutorUnderTest, tmp_path: Path, mended_file: Path) -> None:
    shop = breaking(mended_file)
    land_with_ids(tmp_path, 0, 9)
    with pytest.raises(OutputHeldError, match=r"visits since epoch 5: .*too much to add.*--without visits") as error:
        executor.run(shop, tmp_path.as_uri(), publish=False)
    assert error.value.code == "data.output_held"
    catalog = catalog_of(tmp_path)
    assert line(catalog)[-1].epoch == FIRST + 1, "what was computed is committed"
    with pytest.raises(OutputHeldError):
        executor.run(shop, tmp_path.as_uri(), publish=False)
    with pytest.raises(RunOptionsError, match="hourly, visits, daily"):
        executor.run(shop, tmp_path.as_uri(), without=("visit",), publish=False)
    executor.run(shop, tmp_path.as_uri(), without=("visits",), publish=False)
    assert line(catalog)[-1].epoch == 8
    assert stands(line(catalog)[-1])["epoch"] == FIRST - 1
    mended_file.touch()
    executor.run(shop, tmp_path.as_uri(), publish=False)
    assert "parked" not in stands(line(catalog)[-1])


def test_a_run_leaves_an_output_out_that_it_is_told_to(
    executor: ExecutorUnderTest, undisturbed_run: UndisturbedRun, tmp_path: Path, mended_file: Path
) -> None:
    shop, whole, root = breaking(mended_file), undisturbed_run.root(), tmp_path / "root"
    mended_file.touch()
    for last, outputs_left_out in ((3, ()), (5, ("daily",)), (FILES_IN_ALL, ())):
        land_with_ids(root, 0, last)
        executor.run(shop, root.as_uri(), without=outputs_left_out, publish=False)
        assert ("parked" in stands(line(catalog_of(root))[-1], "daily")) == bool(outputs_left_out)
    assert_same(root, whole, shop)


def test_the_first_run_may_leave_an_output_out(
    executor: ExecutorUnderTest, undisturbed_run: UndisturbedRun, tmp_path: Path, mended_file: Path
) -> None:
    shop, whole, root = breaking(mended_file), undisturbed_run.root(), tmp_path / "root"
    mended_file.touch()
    land_with_ids(root, 0, 3)
    result = executor.run(shop, root.as_uri(), without=("daily",), publish=False)
    assert {*result.parked} == {"daily"}
    first = line(catalog_of(root))[0]
    assert (stands(first, "daily")["epoch"], stands(first, "daily")["snapshot"]) == (-1, None)
    assert first.tables["daily/state"] == ()
    land_with_ids(root, 3, FILES_IN_ALL)
    executor.run(shop, root.as_uri(), publish=False)
    assert_same(root, whole, shop)


def test_expiry_keeps_what_a_parked_output_needs(
    executor: ExecutorUnderTest, undisturbed_run: UndisturbedRun, tmp_path: Path, mended_file: Path
) -> None:
    shop, whole, root = breaking(mended_file, telling=True), undisturbed_run.root(telling=True), tmp_path / "root"
    land_with_ids(root, 0, FIRST)
    executor.run(shop, root.as_uri())
    land_with_ids(root, FIRST, FILES_BEFORE)
    executor.run(shop, root.as_uri())
    refs = catalog_of(root).head().refs
    published_snapshots = {name: refs[f"published/{name}"] for name in shop.outputs}
    assert published_snapshots["visits"] == line(catalog_of(root))[FIRST - 1].snapshot_id, (
        "nothing new of what is parked"
    )
    assert {published_snapshots[name] for name in published_snapshots.keys() - {"visits"}} == {
        line(catalog_of(root))[-1].snapshot_id
    }
    for _ in range(2):
        hr.open(root.as_uri())[shop].expire(keep_last=1)
    assert line(catalog_of(root))[0].epoch == FIRST - 1
    mended_file.touch()
    land_with_ids(root, FILES_BEFORE, FILES_IN_ALL)
    executor.run(shop, root.as_uri())
    for output in shop.outputs:
        assert (
            digests(catalog_of(root), f"{output}/panes") == digests(catalog_of(whole), f"{output}/panes")[FIRST - 1 :]
        )
    for _ in range(2):
        hr.open(root.as_uri())[shop].expire(keep_last=1)
    assert line(catalog_of(root))[0].epoch == FILES_IN_ALL - 1


def test_an_error_of_all_outputs_ends_the_run(executor: ExecutorUnderTest, tmp_path: Path, mended_file: Path) -> None:
    shop = breaking(mended_file)
    shop = replace(shop, input=replace(shop.input, source=replace(shop.input.source, max_rejected=0)))
    land_with_ids(tmp_path, 0, FILES_BEFORE)
    (tmp_path / "landing" / "clicks" / "part-00002.jsonl").write_text("no record\n")
    with pytest.raises(DeadLetterBudgetError):
        executor.run(shop, tmp_path.as_uri(), publish=False)
    assert line(catalog_of(tmp_path))[-1].epoch == 1


def test_a_branch_computes_all_outputs_or_none(executor: ExecutorUnderTest, tmp_path: Path, mended_file: Path) -> None:
    shop = breaking(mended_file)
    land_with_ids(tmp_path, 0, FILES_BEFORE)
    for _ in range(2):  # the second time it forks from main, where an output is parked
        with pytest.raises(PipelineError, match="too much to add"):
            hr.open(tmp_path.as_uri())[shop].backfill(branch="again", executor=executor.executor)
        executor.run(shop, tmp_path.as_uri(), publish=False)
    mended_file.touch()
    result = hr.open(tmp_path.as_uri())[shop].backfill(branch="mended", executor=executor.executor)
    assert result.snapshot is not None
    assert "parked" not in stands(catalog_of(tmp_path).manifest(result.snapshot))
