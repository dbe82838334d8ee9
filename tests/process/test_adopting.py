"""One output is computed again in a branch, and main adopts it: others do not notice."""

import json
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import Deduplicate, Pipeline, col
from headrace.audit.range import audited_files
from headrace.audit.store import AuditFailedError
from headrace.cli.main import app
from headrace.ext.sinks import ChangeSource
from headrace.pipeline.quality import ExpectationView, expect
from headrace.read.diff.changes import changes_between
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.client.recording import make_change, rehearse_change
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import RunOptions
from headrace.runs.plan import CutOver
from headrace.runs.publishing.adoption import NotAdoptableError, publish_adopted
from headrace.runs.publishing.promotion import PartialBranchError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, parked_in, seen_by
from headrace_snapshots.names import published_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import open_store
from tests.process.clicks import START
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.forked import exit_code
from tests.process.fragile import breaking, land_with_ids
from tests.process.outputs import VISITS, catalog_of, line
from tests.process.test_outputs_below import DAYS, GRAPH

LAST = 4
SHOP_WITH_IDS = breaking(Path("unused"))
OLD_SHOP = replace(GRAPH, input=SHOP_WITH_IDS.input, deduplicate=Deduplicate("id", "2d"))
HOURLY_NOW = replace(GRAPH.outputs["hourly"], filter=col("price") > 4)
VISITS_NOW = replace(VISITS, filter=col("price") > 4)
VIEWS = ("panes", "late", "current")


def land_clicks(root: Path, first: int, last: int) -> None:
    """Land files ``first`` to ``last`` (exclusive): with duplicates, with records that only some outputs can take, and
    with one that comes two days too late.
    """
    land_with_ids(root, first, last)
    for file in range(first, last):
        late = {"id": f"{file}-late", "user": "u1", "price": 9, "at": (START - timedelta(days=2)).isoformat()}
        with (root / "landing" / "clicks" / f"part-{file:05d}.jsonl").open("a") as stream:
            stream.write(json.dumps(late) + "\n")


def with_outputs(shop: Pipeline = OLD_SHOP, **outputs: hr.Output) -> Pipeline:
    return replace(shop, outputs={**shop.outputs, **outputs})


HOURLY = with_outputs(hourly=HOURLY_NOW)
SHOP_WITH_VISITS = with_outputs(visits=VISITS_NOW)


@pytest.fixture(autouse=True)
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")  # files are cut by tasks


def history(root: Path, now: Pipeline) -> None:
    """A root whose pipeline has become ``now`` while main went on."""
    land_clicks(root, 0, LAST // 2)
    LOCAL.process(OLD_SHOP, root.as_uri(), RunOptions("before", publish=True))
    land_clicks(root, LAST // 2, LAST)
    LOCAL.process(now, root.as_uri(), RunOptions("changed", publish=True))


def adopt_output(
    executor: ExecutorUnderTest, root: Path, shop: Pipeline, output: str, branch: str = "again"
) -> Manifest:
    """The head of main once it has adopted the output."""
    executor.backfill(shop, root.as_uri(), RunOptions(f"backfill-{branch}", branch=branch, output=output))
    make_change(catalog_of(root), CutOver(branch, output), run_id="adopt")
    return line(catalog_of(root))[-1]


@dataclass(frozen=True)
class Roots:
    """Roots that tests begin or compare with; each is made once."""

    folder: Path
    made: list[tuple[Pipeline, Path]] = field(default_factory=list)

    def history(self, root: Path, now: Pipeline) -> None:
        """Make a root whose pipeline has become ``now`` while main went on."""
        # with the times of files, of which local files have their ETags
        shutil.copytree(self._root("history", now, partial(history, now=now)), root, dirs_exist_ok=True)

    def whole(self, shop: Pipeline, last: int = LAST) -> Path:
        """One whose pipeline was always what it is now, and nothing happened to."""

        def make(root: Path) -> None:
            land_clicks(root, 0, last)
            LOCAL.process(shop, root.as_uri(), RunOptions("whole"))

        return self._root(f"whole-{last}", shop, make)

    def _root(self, kind: str, shop: Pipeline, make: Callable[[Path], None]) -> Path:
        same = (root for owner, root in self.made if owner is shop and root.name == kind)
        root = next(same, None)
        if root is None:
            root = self.folder / str(len(self.made)) / kind
            make(root)
            self.made.append((shop, root))
        return root


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Roots:
    return Roots(tmp_path_factory.mktemp("roots"))


def rows(root: Path, output: str, view: str) -> list[dict[str, Any]]:
    """All rows of a view."""
    return rows_of(hr.open(root.as_uri())["shop"], output, view)


def rows_of(shop: PipelineHandle, output: str, view: str, adoptions: Mapping[int, int] = {}) -> list[dict[str, Any]]:
    """All rows of a view, in the epochs in which they would have come without ``adoptions`` (in these epochs)."""
    read = getattr(shop[output], view)(at="main").to_arrow().to_pylist()
    for row in read:
        row["epoch"] -= sum(row["epoch"] > epoch for epoch in adoptions)
    return sorted(read, key=repr)


rows_of_whole = cache(rows)
"""Nothing changes there."""


def assert_same(root: Path, whole: Path, shop: Pipeline) -> None:
    """All outputs under ``root`` are what they are under ``whole``, but for the numbers of epochs after an adoption."""
    adoptions = {
        manifest.epoch: 1
        for manifest in line(catalog_of(root))
        if any(own.get("adopted") == manifest.epoch for own in manifest.schema["outputs"].values())
        and not manifest.timings  # else the output came with the epoch
    }
    shop_handle = hr.open(root.as_uri())["shop"]
    for output in shop.outputs:
        for view in (*VIEWS, "rejected"):
            assert rows_of(shop_handle, output, view, adoptions) == rows_of_whole(whole, output, view), (output, view)
    check_catalog(open_store(root.as_uri()), "shop")


def test_a_changed_output_comes_back_with_what_reads_it(
    executor: ExecutorUnderTest, roots: Roots, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    roots.history(root, HOURLY)
    manifest_before = line(catalog_of(root))[-1]
    assert {*parked_in(manifest_before)} == {"hourly", "days", "both"}
    seen_refs = published_of(catalog_of(root).head().refs)
    head = adopt_output(executor, root, HOURLY, "hourly")
    assert parked_in(head) == {}
    assert published_of(catalog_of(root).head().refs) == seen_refs, "readers see nothing of it yet"
    for new_by_name, old_by_name in ((head.tables, manifest_before.tables), (head.logs, manifest_before.logs)):
        others = {name: value for name, value in old_by_name.items() if name.startswith(("visits/", "daily/"))}
        assert {name: new_by_name[name] for name in others} == others
        assert (head.tables["ids"], head.logs["inputs"]) == (
            manifest_before.tables["ids"],
            manifest_before.logs["inputs"],
        )
    assert_same(root, roots.whole(HOURLY), HOURLY)
    assert head.fingerprint == line(catalog_of(roots.whole(HOURLY)))[-1].fingerprint
    executor.audit(HOURLY, root.as_uri(), RunOptions("audit"))
    result = publish_adopted(catalog_of(root), hr.open(root.as_uri())["shop"].publish(), "hourly", "publish")
    assert {*published_of(catalog_of(root).head().refs).values()} == {head.snapshot_id}
    assert result.warnings == ()
    land_clicks(root, LAST, LAST + 2)
    result = executor.process(HOURLY, root.as_uri(), RunOptions("on", publish=True))
    assert [*result.epochs] == [LAST + 1, LAST + 2]
    assert_same(root, roots.whole(HOURLY, LAST + 2), HOURLY)


@on_both
def test_main_goes_on_while_a_branch_computes(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    root = tmp_path / "root"
    roots.history(root, SHOP_WITH_VISITS)
    executor.backfill(SHOP_WITH_VISITS, root.as_uri(), RunOptions("backfill", branch="again", output="visits"))
    land_clicks(root, LAST, LAST + 2)
    executor.process(SHOP_WITH_VISITS, root.as_uri(), RunOptions("on", publish=True))
    result = make_change(catalog_of(root), CutOver("again", "visits"), run_id="adopt")
    assert "2 epochs more than branch again" in result.warnings[0]
    assert parked_in(line(catalog_of(root))[-1]) == {"visits": LAST - 1}
    executor.process(SHOP_WITH_VISITS, root.as_uri(), RunOptions("caught-up", publish=True))
    assert parked_in(line(catalog_of(root))[-1]) == {}
    assert_same(root, roots.whole(SHOP_WITH_VISITS, LAST + 2), SHOP_WITH_VISITS)


def test_main_goes_on_just_before_it_is_claimed(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    root = tmp_path / "root"
    roots.history(root, SHOP_WITH_VISITS)
    executor.backfill(SHOP_WITH_VISITS, root.as_uri(), RunOptions("backfill", branch="again", output="visits"))

    class Quicker(Catalog):
        def claim(self, branch: str, owner: str) -> Claim:
            land_clicks(root, LAST, LAST + 1)
            executor.process(SHOP_WITH_VISITS, root.as_uri(), RunOptions("quicker"))
            return super().claim(branch, owner)

    make_change(Quicker(open_store(root.as_uri()), "shop"), CutOver("again", "visits"), run_id="adopt")
    assert [manifest.epoch for manifest in line(catalog_of(root))][-2:] == [LAST, LAST + 1]
    assert parked_in(line(catalog_of(root))[-1]) == {"visits": LAST - 1}
    executor.process(SHOP_WITH_VISITS, root.as_uri(), RunOptions("caught-up", publish=True))
    assert_same(root, roots.whole(SHOP_WITH_VISITS, LAST + 1), SHOP_WITH_VISITS)


def test_a_branch_that_was_stopped_goes_on(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    root = tmp_path / "root"
    roots.history(root, SHOP_WITH_VISITS)
    some = RunOptions("some", branch="again", output="visits", max_epochs=2)
    executor.backfill(SHOP_WITH_VISITS, root.as_uri(), some)
    assert line(catalog_of(root), "again")[-1].epoch == 1
    adopt_output(executor, root, SHOP_WITH_VISITS, "visits")
    assert_same(root, roots.whole(SHOP_WITH_VISITS), SHOP_WITH_VISITS)


@set_sizes(epochs_computed_again=1)
def test_a_new_output_gets_its_history(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    root = tmp_path / "root"
    more = with_outputs(more=replace(DAYS, of="visits"))
    roots.history(root, more)
    assert parked_in(line(catalog_of(root))[-1]) == {"more": -1}
    assert parked_in(adopt_output(executor, root, more, "more")) == {}
    assert_same(root, roots.whole(more), more)


def test_of_an_output_that_reads_others_only_that_is_adopted(
    executor: ExecutorUnderTest, roots: Roots, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    changed_pipeline = with_outputs(days=replace(DAYS, what={"spent": col("spent").max()}))
    roots.history(root, changed_pipeline)
    manifest_before = line(catalog_of(root))[-1]
    head = adopt_output(executor, root, changed_pipeline, "days")
    own = {name: value for name, value in manifest_before.tables.items() if name.startswith("hourly/")}
    assert {name: head.tables[name] for name in own} == own, "it is computed in the branch, and not adopted"
    assert_same(root, roots.whole(changed_pipeline), changed_pipeline)


def test_readers_of_a_copy_and_audits_see_all_rows(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    roots.history(tmp_path, SHOP_WITH_VISITS)
    catalog = seen_catalog(catalog_of(tmp_path), "visits")
    shown_snapshot = catalog.head().refs["published"]
    head = seen_by(adopt_output(executor, tmp_path, SHOP_WITH_VISITS, "visits"), "visits")
    with changes_between(catalog, shown_snapshot, head) as changes:
        assert changes.source is ChangeSource.DIFFERENCE
        removed_rows = sum(batch.num_rows for batch in changes.removed())
    assert removed_rows, "sessions of prices that do not count any more"
    assert len(audited_files(catalog, shown_snapshot, head).files[ExpectationView.PANES]) == LAST
    land_clicks(tmp_path, LAST, LAST + 1)
    executor.process(SHOP_WITH_VISITS, tmp_path.as_uri(), RunOptions("on", publish=True))
    with changes_between(catalog, head.snapshot_id, catalog.manifest(catalog.head().refs["main"])) as changes:
        assert changes.source is ChangeSource.PANES, "what comes after it is read from panes again"


def test_a_rollback_takes_it_back(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    roots.history(tmp_path, SHOP_WITH_VISITS)
    manifest_before, seen_refs = line(catalog_of(tmp_path))[-1], published_of(catalog_of(tmp_path).head().refs)
    assert {output for output, snapshot in seen_refs.items() if snapshot != manifest_before.snapshot_id} == {
        "visits"
    }, "which is parked"
    adopt_output(executor, tmp_path, SHOP_WITH_VISITS, "visits")
    executor.process(SHOP_WITH_VISITS, tmp_path.as_uri(), RunOptions("publish", publish=True))
    catalog_of(tmp_path).rollback("main", manifest_before.snapshot_id, "as it was")
    assert published_of(catalog_of(tmp_path).head().refs) == seen_refs
    executor.process(SHOP_WITH_VISITS, tmp_path.as_uri(), RunOptions("on", publish=True))
    assert "visits" in parked_in(line(catalog_of(tmp_path))[-1])


def check_refusal(
    root: Path, output: str, match: str, branch: str = "again", error: type[Exception] = NotAdoptableError
) -> None:
    """Nothing moves, and the rehearsal says the same."""
    catalog = catalog_of(root)
    head = catalog.head()
    with pytest.raises(error, match=match):
        make_change(catalog, CutOver(branch, output), run_id="adopt")
    assert catalog.head() == head
    (refusal,) = rehearse_change(catalog, CutOver(branch, output)).refusals
    assert isinstance(refusal, error)


def test_what_main_reads_otherwise_is_not_adopted(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    roots.history(tmp_path, SHOP_WITH_VISITS)
    root = tmp_path.as_uri()
    executor.backfill(SHOP_WITH_VISITS, root, RunOptions("branch", branch="again", output="visits"))
    catalog = catalog_of(tmp_path)
    catalog.rollback("main", line(catalog)[LAST // 2].snapshot_id, "back")
    check_refusal(tmp_path, "visits", "has read more than main")
    executor.process(SHOP_WITH_VISITS, root, RunOptions("on", files_per_epoch=2))
    check_refusal(tmp_path, "visits", "has not read what main has read: epoch 3 differs")
    with pytest.raises(RunOptionsError, match="epoch 3 differs"):
        executor.backfill(SHOP_WITH_VISITS, root, RunOptions("again", branch="again", output="visits"))


def test_a_whole_branch_has_other_epochs(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    shop = replace(SHOP_WITH_VISITS, deduplicate=None)
    land_clicks(tmp_path, 0, 3)
    executor.process(shop, tmp_path.as_uri(), RunOptions("run"))
    land_clicks(tmp_path, 3, 4)
    executor.backfill(shop, tmp_path.as_uri(), RunOptions("branch", branch="again", files_per_epoch=5))
    check_refusal(tmp_path, "visits", "epoch 3 differs|has not read|has read more")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"visits": replace(VISITS, key={"user": col("user"), "price": col("price")})}, None),
        ({"visits": replace(VISITS, key={"who": hr.coalesce(col("user"), "nobody")})}, "takes other records than main"),
    ],
)  # fmt: skip
def test_an_output_that_takes_other_records(
    changes: dict[str, hr.Output], match: str | None, executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    shop = with_outputs(**changes)
    without_daily = {name: output for name, output in shop.outputs.items() if name != "daily"}
    pipeline_before = replace(OLD_SHOP, outputs={name: OLD_SHOP.outputs[name] for name in without_daily})
    land_clicks(tmp_path, 0, 3)
    executor.process(pipeline_before, tmp_path.as_uri(), RunOptions("before"))
    shop = replace(shop, outputs=without_daily)
    executor.backfill(shop, tmp_path.as_uri(), RunOptions("branch", branch="again", output="visits"))
    if match is None:
        make_change(catalog_of(tmp_path), CutOver("again", "visits"), run_id="adopt")
    else:
        check_refusal(tmp_path, "visits", match)


def test_what_it_reads_has_to_be_main_s(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    counting = replace(GRAPH.outputs["hourly"], what={**GRAPH.outputs["hourly"].what, "most": col("price").max()})
    shop, root = with_outputs(hourly=counting), tmp_path.as_uri()
    land_clicks(tmp_path, 0, 2)
    executor.process(OLD_SHOP, root, RunOptions("before"))
    land_clicks(tmp_path, 2, 4)
    executor.process(shop, root, RunOptions("migrated", allow_new_aggregates=True))
    changed_pipeline = with_outputs(shop, days=replace(DAYS, what={"spent": col("spent").max()}))
    executor.process(changed_pipeline, root, RunOptions("changed"))
    executor.backfill(changed_pipeline, root, RunOptions("branch", branch="again", output="days"))
    check_refusal(tmp_path, "days", "read output hourly, of which main has other rows")
    assert parked_in(adopt_output(executor, tmp_path, changed_pipeline, "hourly", "hourly-again")) == {}
    assert_same(tmp_path, roots.whole(changed_pipeline, 4), changed_pipeline)


def test_said_before_anything_is_computed(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land_clicks(tmp_path, 0, 3)

    def backfill(shop: Pipeline, output: str, **options: Any) -> Callable[[], object]:
        return lambda: executor.backfill(
            shop, root, RunOptions("branch", branch="again", output=output, promotes=True, **options)
        )

    refusals: list[tuple[Callable[[], object], type[Exception], str]] = [
        (backfill(OLD_SHOP, "visits"), RunOptionsError, "has read nothing yet"),
    ]
    with pytest.raises(RunOptionsError, match="has read nothing yet"):
        backfill(OLD_SHOP, "visits")()
    executor.process(OLD_SHOP, root, RunOptions("before"))
    days = replace(DAYS, what={"spent": col("spent").max()})
    refusals = [
        (backfill(OLD_SHOP, "visit"), UnknownOutputError, "no output 'visit'"),
        (backfill(OLD_SHOP, "visits", files_per_epoch=3), RunOptionsError, "in the epochs that main recorded"),
        (backfill(replace(OLD_SHOP, deduplicate=None), "visits"), NotAdoptableError, "inputs of shop have changed"),
        (backfill(with_outputs(hourly=HOURLY_NOW, days=days), "days"), NotAdoptableError, "reads output hourly, which"),
    ]
    for run, error, match in refusals:
        with pytest.raises(error, match=match):
            run()
    assert "again" not in catalog_of(tmp_path).head().generations


def test_such_a_branch_is_not_promoted_as_a_whole(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    roots.history(tmp_path, SHOP_WITH_VISITS)
    executor.backfill(SHOP_WITH_VISITS, tmp_path.as_uri(), RunOptions("branch", branch="again", output="visits"))
    with pytest.raises(PartialBranchError, match="has not computed both, daily, days, hourly up to its end"):
        hr.open(tmp_path.as_uri())["shop"].promote("again")
    check_refusal(tmp_path, "hourly", "has not computed")


def test_an_audit_that_fails_keeps_it_out(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    strict = [expect("column_values_to_be_between", column="spent", max_value=1)]
    shop = with_outputs(visits=replace(VISITS_NOW, expectations=strict))
    roots.history(tmp_path, shop)
    executor.backfill(shop, tmp_path.as_uri(), RunOptions("branch", branch="again", output="visits"))
    check_refusal(tmp_path, "visits", "expectations failed|failed", error=AuditFailedError)


KILLS_ITSELF = """
import sys
from headrace.runs.client.recording import make_change
from headrace.runs.plan import CutOver
from headrace_snapshots.catalog import Catalog
from tests.process.dying import deadly

make_change(Catalog(deadly(int(sys.argv[2]))(sys.argv[1]), "shop"), CutOver("again", "visits"), run_id="killed")
"""


def test_killed_at_every_write(executor: ExecutorUnderTest, roots: Roots, tmp_path: Path) -> None:
    root = tmp_path / "root"
    roots.history(root, SHOP_WITH_VISITS)
    executor.backfill(SHOP_WITH_VISITS, root.as_uri(), RunOptions("branch", branch="again", output="visits"))
    seen_refs = published_of(catalog_of(root).head().refs)
    ends = []
    for writes in range(50):
        code = exit_code(KILLS_ITSELF, root, str(writes))
        assert published_of(catalog_of(root).head().refs) == seen_refs
        check_catalog(open_store(root.as_uri()), "shop")
        ends.append(code)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (root / "driver.log").read_text()
    assert len(ends) > 4, "it was killed in between"
    executor.process(SHOP_WITH_VISITS, root.as_uri(), RunOptions("publish", publish=True))
    assert_same(root, roots.whole(SHOP_WITH_VISITS), SHOP_WITH_VISITS)
    assert {*published_of(catalog_of(root).head().refs).values()} == {catalog_of(root).head().refs["main"]}


def test_from_python(tmp_path: Path, roots: Roots, executor: ExecutorUnderTest) -> None:
    root = tmp_path / "root"
    roots.history(root, HOURLY)
    shop = hr.open(root.as_uri())[HOURLY]
    result = shop.backfill(output="hourly", promote=True)
    head = line(catalog_of(root))[-1]
    assert {*published_of(catalog_of(root).head().refs).values()} == {head.snapshot_id} == {result.snapshot}
    assert [*catalog_of(root).head().generations] == ["main"]
    assert_same(root, roots.whole(HOURLY), HOURLY)
    assert any("adopted both, days, hourly of branch" in entry.message for entry in catalog_of(root).list_entries())
    assert rows(root, "hourly", "late"), "some came too late"
    assert [row for row in rows(root, "hourly", "rejected") if row["output"]], "it cannot take some"


def test_from_the_command_line(
    executor: ExecutorUnderTest, roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    roots.history(root, SHOP_WITH_VISITS)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/shop.py").write_text("from tests.process.test_adopting import SHOP_WITH_VISITS\n")
    monkeypatch.setenv("HEADRACE_PIPELINES", str(tmp_path / "pipelines"))

    def run_command(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--root", root.as_uri()])
        assert result.exit_code == 0, result.stderr
        return result.stderr

    computed_text = run_command("backfill", "shop.visits", "--branch", "again", "--executor", "local")
    assert "branch again computes visits in the epochs of main" in computed_text
    assert f"headrace backfill shop.visits --root {root.as_uri()} --branch again" in computed_text
    dry = run_command("promote", "shop.visits", "again", "--dry-run")
    assert "it would let main adopt visits of branch again, as epoch " in dry
    assert "nothing is against the promotion: headrace promote shop.visits again" in dry
    run_command("promote", "shop.visits", "again", "--message", "the price counts")
    (entry,) = (entry for entry in catalog_of(root).list_entries() if "adopted visits of branch again" in entry.message)
    assert entry.message.endswith(": the price counts")
    assert_same(root, roots.whole(SHOP_WITH_VISITS), SHOP_WITH_VISITS)
