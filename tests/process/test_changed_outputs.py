"""Outputs that are new, gone, renamed or changed do not stop the others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.audit.range import audited_files
from headrace.errors import PipelineError
from headrace.ext.sinks import ChangeSource
from headrace.pipeline.quality import ExpectationView
from headrace.read.diff.changes import changes_between
from headrace.runs.options import RunOptions
from headrace.runs.publishing.publish import NothingToPublishError, publish_audited
from headrace.runs.restore import ChangedPipelineError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import parked_in, seen_by, with_names
from headrace_snapshots.names import published_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, FILES, land
from tests.process.executors import ExecutorUnderTest
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS, catalog_of, digests, line

TWO = replace(SHOP, outputs={"hourly": HOURLY, "daily": DAILY})
ONE = replace(CLICKS, name="shop", executor="local")


def stands(manifest: Manifest, output: str) -> dict[str, Any]:
    own: dict[str, Any] = manifest.progress["outputs"][output]
    return own


def whole(executor: ExecutorUnderTest, root: Path, shop: Pipeline = SHOP) -> Path:
    """A root where ``shop`` has read all files from the beginning."""
    land(root)
    executor.process(shop, root.as_uri(), RunOptions("whole"))
    return root


def test_a_new_output_is_computed_of_what_was_read_before(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path / "root"
    land(root, 0, 3)
    executor.process(TWO, root.as_uri(), RunOptions("two", publish=True))
    land(root, 3, FILES)
    executor.process(SHOP, root.as_uri(), RunOptions("more", publish=True))
    ours, theirs = catalog_of(root), catalog_of(whole(executor, tmp_path / "whole"))
    for output in SHOP.outputs:
        assert digests(ours, f"{output}/panes") == digests(theirs, f"{output}/panes"), output
    more = replace(SHOP, outputs={**SHOP.outputs, "more": HOURLY})
    result = executor.process(more, root.as_uri(), RunOptions("idle", publish=True))
    assert [*result.epochs] == [FILES], "an epoch for it, though nothing has landed"
    assert hr.open(root.as_uri())["shop"]["visits"].current().count()
    check_catalog(open_store(root.as_uri()), "shop")


@set_sizes(epochs_computed_again=2)
def test_a_new_output_waits_where_history_is_long(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 3)
    executor.process(TWO, tmp_path.as_uri(), RunOptions("two"))
    land(tmp_path, 3, 4)
    result = executor.process(SHOP, tmp_path.as_uri(), RunOptions("more"))
    assert any("3 epochs are too many" in warning for warning in result.warnings)
    head = line(catalog_of(tmp_path))[-1]
    assert (head.epoch, stands(head, "visits")["epoch"], stands(head, "visits")["snapshot"]) == (3, -1, None)
    assert stands(head, "visits")["parked"]["since"] == 3
    assert "parked" not in stands(head, "hourly")
    with set_sizes(epochs_computed_again=4):
        executor.process(SHOP, tmp_path.as_uri(), RunOptions("again"))
        assert "parked" not in stands(line(catalog_of(tmp_path))[-1], "visits")


def test_a_new_output_waits_that_takes_records_whose_ids_nobody_remembers(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    dear = replace(HOURLY, filter=col("price") > 3)
    shop = replace(SHOP, outputs={"dear": dear}, deduplicate=hr.Deduplicate("user", "1d"))
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)

    def land_prices(number: int, prices: dict[str, int]) -> None:
        rows = [{"user": user, "at": "2026-01-01T00:00:00Z", "price": price} for user, price in prices.items()]
        (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    land_prices(0, {"a": 2, "b": 7})
    land_prices(1, {"a": 2, "c": 8})
    executor.process(shop, tmp_path.as_uri(), RunOptions("dear"))
    land_prices(2, {"b": 7, "d": 9})
    more = replace(shop, outputs={"dear": dear, "same": dear, "all": HOURLY})
    assert executor.process(more, tmp_path.as_uri(), RunOptions("more")).status == "succeeded"
    head = line(catalog_of(tmp_path))[-1]
    assert [*parked_in(head)] == ["all"], "else a counts twice"
    assert "records of epoch 0 would count now" in stands(head, "all")["parked"]["message"]
    seen_table = hr.open(tmp_path.as_uri())["shop"]["same"].current(at="main").to_arrow()
    assert sorted(seen_table["user"].to_pylist()) == ["b", "c", "d"]


@set_sizes(epochs_computed_again=2)
def test_nothing_is_published_of_a_new_output_that_waits_and_others_are(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 3)
    executor.process(TWO, root, RunOptions("two"))
    land(tmp_path, 3, 4)
    executor.process(SHOP, root, RunOptions("three"))
    assert [*parked_in(line(catalog_of(tmp_path))[-1])] == ["visits"]
    assert publish_audited("shop", root, last_announced=None, output="hourly").warnings == ()
    for output in ("visits", None):
        with pytest.raises(NothingToPublishError, match="output visits is parked"):
            publish_audited("shop", root, last_announced=None, output=output)


def test_an_output_is_gone(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path / "root"
    land(root, 0, 3)
    executor.process(SHOP, root.as_uri(), RunOptions("all", publish=True))
    land(root, 3, FILES)
    executor.process(TWO, root.as_uri(), RunOptions("two", publish=True))
    head = line(catalog_of(root))[-1]
    assert not any(name.startswith("visits/") for name in (*head.tables, *head.logs, *head.counts))
    assert {*head.progress["outputs"]} == {*head.schema["outputs"]} == {*head.definition["outputs"]} == {*TWO.outputs}
    theirs = catalog_of(whole(executor, tmp_path / "whole"))
    for output in TWO.outputs:
        assert digests(catalog_of(root), f"{output}/panes") == digests(theirs, f"{output}/panes")
    check_catalog(open_store(root.as_uri()), "shop")


def test_a_changed_output_waits_and_may_be_taken_back(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path / "root"
    land(root, 0, 2)
    executor.process(SHOP, root.as_uri(), RunOptions("as-it-was", publish=True))
    changed_pipeline = replace(SHOP, outputs={**SHOP.outputs, "visits": replace(VISITS, filter=col("price") > 4)})
    land(root, 2, 4)
    result = executor.process(changed_pipeline, root.as_uri(), RunOptions("changed", publish=True))
    assert any("output visits" in warning and "headrace backfill shop" in warning for warning in result.warnings)
    manifest_before, head = line(catalog_of(root))[1], line(catalog_of(root))[-1]
    assert stands(head, "visits")["parked"]["code"] == "config.changed_pipeline"
    assert (head.epoch, stands(head, "visits")["epoch"]) == (3, 1)
    assert seen_by(head, "visits").fingerprint == seen_by(manifest_before, "visits").fingerprint
    assert head.tables["visits/state"] == manifest_before.tables["visits/state"]
    land(root, 4, FILES)
    executor.process(SHOP, root.as_uri(), RunOptions("taken-back", publish=True))
    theirs = catalog_of(whole(executor, tmp_path / "whole"))
    for output in SHOP.outputs:
        assert digests(catalog_of(root), f"{output}/panes") == digests(theirs, f"{output}/panes")
    assert line(catalog_of(root))[-1].fingerprint == line(theirs)[-1].fingerprint


def test_a_run_in_which_no_output_goes_on_refuses(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(TWO, tmp_path.as_uri(), RunOptions("two"))
    others = {name: replace(output, filter=col("price") > 7) for name, output in TWO.outputs.items()}
    with pytest.raises(ChangedPipelineError, match="output hourly of pipeline shop has changed"):
        executor.process(replace(TWO, outputs=others), tmp_path.as_uri(), RunOptions("changed"))
    with pytest.raises(ChangedPipelineError, match="has other outputs since"):
        executor.process(replace(TWO, outputs={"visits": VISITS}), tmp_path.as_uri(), RunOptions("other"))


def test_one_output_gets_a_name_later(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root, whole_root = tmp_path / "root", tmp_path / "whole"
    land(root, 0, 3)
    executor.process(ONE, root.as_uri(), RunOptions("unnamed", publish=True))
    files = {
        file.path
        for layers in line(catalog_of(root))[-1].tables.values()
        for layer_name in layers
        for file in layer_name.files
    }
    named_pipeline = replace(SHOP, outputs={"hourly": replace(HOURLY, formerly=""), "daily": DAILY})
    land(root, 3, FILES)
    executor.process(named_pipeline, root.as_uri(), RunOptions("named", publish=True))
    head = line(catalog_of(root))[-1]
    assert {*head.tables} == {"hourly/state", "hourly/current", "daily/state", "daily/state_1", "daily/current"}
    assert files <= {file.path for layers in head.tables.values() for layer_name in layers for file in layer_name.files}
    land(whole_root)
    executor.process(ONE, whole_root.as_uri(), RunOptions("whole"))
    records = [
        {record.epoch: [file.sha256 for file in record.files] for record in catalog.file_records(log)}
        for catalog, log in (
            (catalog_of(root), head.logs["hourly/panes"]),
            (catalog_of(whole_root), line(catalog_of(whole_root))[-1].logs["panes"]),
        )
    ]
    assert records[0] == records[1]
    assert hr.open(root.as_uri())["shop"]["hourly"].current().count()
    shown_refs = published_of(catalog_of(root).head().refs)
    second_pipeline = replace(SHOP, outputs={"by_hour": replace(HOURLY, formerly="hourly"), "daily": DAILY})
    land(root, FILES, FILES + 1)
    executor.process(second_pipeline, root.as_uri(), RunOptions("renamed"))
    assert published_of(catalog_of(root).head().refs) == {"by_hour": shown_refs["hourly"], "daily": shown_refs["daily"]}
    assert {*line(catalog_of(root))[-1].schema["outputs"]} == {"by_hour", "daily"}
    check_catalog(open_store(root.as_uri()), "shop")


def test_readers_see_an_output_under_its_new_name_from_its_first_snapshot_on(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    land(tmp_path, 0, 2)
    executor.process(ONE, tmp_path.as_uri(), RunOptions("unnamed", publish=True))
    table_before = hr.open(tmp_path.as_uri())["shop"].current().to_arrow()
    shown_snapshot = catalog_of(tmp_path).head().refs["published"]
    land(tmp_path, 2, 3)
    by_hour = replace(SHOP, outputs={"by_hour": replace(HOURLY, formerly=""), "daily": DAILY})
    executor.process(by_hour, tmp_path.as_uri(), RunOptions("named"))
    land(tmp_path, 3, 4)
    second_pipeline = replace(SHOP, outputs={"hours": replace(HOURLY, formerly="by_hour"), "daily": DAILY})
    executor.process(second_pipeline, tmp_path.as_uri(), RunOptions("renamed"))
    catalog = catalog_of(tmp_path)
    assert published_of(catalog.head().refs) == {"hours": shown_snapshot}
    hours = hr.open(tmp_path.as_uri())["shop"]["hours"]
    assert hours.current().to_arrow() == table_before
    assert hours.current(at=line(catalog)[2].snapshot_id).count() > table_before.num_rows
    assert line(catalog)[-1].schema["outputs"]["hours"]["formerly"] == ["by_hour", ""]
    audited_result = executor.audit(second_pipeline, tmp_path.as_uri(), RunOptions("audit")).outputs["hours"].audit
    assert audited_result is not None
    assert audited_result.from_snapshot == shown_snapshot, "what readers have seen is not audited again"
    publish_audited("shop", tmp_path.as_uri(), last_announced=None)
    head = line(catalog)[-1].snapshot_id
    assert published_of(catalog.head().refs) == {"hours": head, "daily": head}
    check_catalog(open_store(tmp_path.as_uri()), "shop")


def test_a_branch_gives_no_names_to_what_readers_see(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(ONE, tmp_path.as_uri(), RunOptions("unnamed", publish=True))
    shown_snapshot = catalog_of(tmp_path).head().refs["published"]
    hr.open(tmp_path.as_uri())["shop"].fork("main", "side")
    land(tmp_path, 2, 3)
    named_pipeline = replace(SHOP, outputs={"hourly": replace(HOURLY, formerly="")})
    executor.process(named_pipeline, tmp_path.as_uri(), RunOptions("side", branch="side"))
    assert published_of(catalog_of(tmp_path).head().refs) == {"": shown_snapshot}


def test_a_named_manifest_is_seen_as_it_was(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(ONE, tmp_path.as_uri(), RunOptions("unnamed"))
    head = line(catalog_of(tmp_path))[-1]
    seen_manifest = seen_by(with_names(head, {"hourly": ""}), "hourly")
    assert seen_manifest.replace(schema=head.schema) == head
    assert seen_manifest.schema == {**head.schema, "output": "hourly", "formerly": [""]}


def test_two_outputs_cannot_have_been_the_same() -> None:
    both = {"hourly": replace(HOURLY, formerly=""), "daily": replace(DAILY, formerly="")}
    with pytest.raises(PipelineError, match="formerly= says the same name"):
        replace(SHOP, outputs=both)


@pytest.mark.parametrize("publish", [True, False])
def test_an_output_that_comes_back_is_another(tmp_path: Path, publish: bool) -> None:
    """Whoever has rows of the one that was there before is not told the panes since alone, nor is an audit."""
    root = hr.open(tmp_path.as_uri(), create=True)
    land(tmp_path, 0, 1)
    root[TWO].run()
    shown_snapshot = line(catalog_of(tmp_path))[-1].snapshot_id
    land(tmp_path, 1, 2)
    root[replace(SHOP, outputs={"daily": DAILY})].run(publish=publish)
    land(tmp_path, 2, 3)
    dear = replace(HOURLY, filter=col("price") > 7)
    root[replace(SHOP, outputs={"hourly": dear, "daily": DAILY})].run(publish=False)
    assert published_of(catalog_of(tmp_path).head().refs).get("hourly") == (None if publish else shown_snapshot)
    seen_by_readers = seen_catalog(catalog_of(tmp_path), "hourly")
    head = seen_by_readers.manifest(line(catalog_of(tmp_path))[-1].snapshot_id)
    with changes_between(seen_by_readers, shown_snapshot, head) as changes:
        assert changes.source is ChangeSource.DIFFERENCE
    assert audited_files(seen_by_readers, shown_snapshot, head).since == -1
    later_paths = {file.path for file in audited_files(seen_by_readers, None, head).files[ExpectationView.PANES]}
    assert {
        file.path for file in audited_files(seen_by_readers, shown_snapshot, head).files[ExpectationView.PANES]
    } == later_paths


def test_an_output_that_gets_the_name_of_one_that_got_another(tmp_path: Path) -> None:
    root = hr.open(tmp_path.as_uri(), create=True)
    land(tmp_path, 0, 1)
    root[replace(SHOP, outputs={"hourly": HOURLY, "visits": VISITS})].run()
    shown_snapshot = line(catalog_of(tmp_path))[-1].snapshot_id
    hours = replace(HOURLY, formerly="hourly")
    land(tmp_path, 1, 2)
    root[replace(SHOP, outputs={"hours": hours, "visits": VISITS})].run(publish=False)
    land(tmp_path, 2, 3)
    both = replace(SHOP, outputs={"hours": hours, "hourly": replace(VISITS, formerly="visits")})
    root[both].run(publish=False)
    catalog = catalog_of(tmp_path)
    assert published_of(catalog.head().refs) == {"hours": shown_snapshot, "hourly": shown_snapshot}
    for output, source in (("hours", ChangeSource.PANES), ("hourly", ChangeSource.DIFFERENCE)):
        seen_by_readers = seen_catalog(catalog, output)
        with changes_between(
            seen_by_readers, shown_snapshot, seen_by_readers.manifest(catalog.head().refs["main"])
        ) as changes:
            assert changes.source is source, output
    assert root["shop"]["hours"].current().count()
    root[both].run()
    assert {*published_of(catalog.head().refs).values()} == {catalog.head().refs["main"]}


def test_what_readers_see_stays_while_a_new_name_waits_for_the_next_epoch(tmp_path: Path) -> None:
    root = hr.open(tmp_path.as_uri(), create=True)
    totals = hr.Output(of="hourly", what={"clicks": col("clicks").sum()}, where=hr.GlobalWindows(), when=hr.on_update())
    land(tmp_path, 0, 1)
    root[replace(SHOP, outputs={"hourly": HOURLY, "totals": totals, "visits": VISITS})].run()
    shown_snapshot = line(catalog_of(tmp_path))[-1].snapshot_id
    land(tmp_path, 1, 2)
    root[replace(SHOP, outputs={"hourly": HOURLY, "totals": totals, "visits": VISITS})].run(publish=False)
    hours = {"hours": replace(HOURLY, formerly="hourly"), "totals": replace(totals, of=("hours",)), "visits": VISITS}
    root[replace(SHOP, outputs=hours)].run()
    catalog = catalog_of(tmp_path)
    (head,) = {published_of(catalog.head().refs)["visits"]}
    assert head == line(catalog)[-1].snapshot_id
    assert published_of(catalog.head().refs) == {"hourly": shown_snapshot, "totals": shown_snapshot, "visits": head}
    land(tmp_path, 2, 3)
    root[replace(SHOP, outputs=hours)].run()
    assert published_of(catalog.head().refs) == dict.fromkeys(hours, line(catalog)[-1].snapshot_id)


def test_of_two_changed_outputs_one_is_computed_again_before_any_run(tmp_path: Path) -> None:
    root = hr.open(tmp_path.as_uri(), create=True)
    land(tmp_path, 0, 1)
    root[SHOP].run()
    shown_snapshot = line(catalog_of(tmp_path))[-1].snapshot_id
    changed_outputs = {name: replace(SHOP.outputs[name], filter=col("price") > 7) for name in ("hourly", "visits")}
    both = replace(SHOP, outputs={**SHOP.outputs, **changed_outputs})
    result = root[both].backfill(output="hourly", promote=True)
    head = line(catalog_of(tmp_path))[-1].snapshot_id
    assert published_of(catalog_of(tmp_path).head().refs) == {"hourly": head, "visits": shown_snapshot, "daily": head}
    result = root[both].run()
    assert any("output visits of pipeline shop has changed" in warning for warning in result.warnings)
    assert published_of(catalog_of(tmp_path).head().refs)["visits"] == shown_snapshot


def test_an_output_waits_whose_upstream_means_something_else_under_its_name(tmp_path: Path) -> None:
    """It means what it meant itself: what it reads has the name of another now, whose state is of no use."""
    root = hr.open(tmp_path.as_uri(), create=True)
    dear = replace(HOURLY, filter=col("price") > 7)
    totals = hr.Output(of="hourly", what={"clicks": col("clicks").sum()}, where=hr.GlobalWindows(), when=hr.on_update())
    land(tmp_path, 0, 1)
    root[replace(SHOP, outputs={"hourly": HOURLY, "dear": dear, "daily": DAILY, "totals": totals})].run()
    swapped_outputs = {"hourly": dear, "dear": HOURLY, "daily": DAILY, "totals": replace(totals, of=("dear",))}
    for number in (1, 2):
        land(tmp_path, number, number + 1)
        root[replace(SHOP, outputs=swapped_outputs)].run()
        assert stands(line(catalog_of(tmp_path))[-1], "totals")["epoch"] == 0
    root[replace(SHOP, outputs=swapped_outputs)].backfill(output="dear", promote=True)
    whole = hr.open((tmp_path / "whole").as_uri(), create=True)
    land(tmp_path / "whole", 0, 3)
    whole[replace(SHOP, outputs=swapped_outputs)].run()
    ours, theirs = (shop["shop"]["totals"].current(columns=["clicks"]).to_json() for shop in (root, whole))
    assert ours == theirs
