"""Several outputs of one pipeline: one reading, one epoch, one snapshot; each output as if it were alone."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import CalendarWindows, Deduplicate, Output, Pipeline, col, count, expect
from headrace.audit.range import releases_that_hold
from headrace.audit.store import AuditFailedError, LimitExceededError
from headrace.errors import HeadraceError, PipelineError
from headrace.observe.pane_history import PaneHistory
from headrace.pipeline.parts import SeveralOutputsError
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.snapshot_refs import snapshot_at
from headrace.runs.options import RunOptions
from headrace.runs.publishing.promotion import rehearse_for_readers
from headrace.runs.publishing.publish import UpstreamUnpublishedError
from headrace.runs.recovery_target import with_epochs
from headrace.runs.reporting.summary import summarize_pipeline
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.codec import NewerFormatError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, seen_by
from headrace_snapshots.names import published_of
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import Operation, disturb_stores
from tests.process.clicks import CLICKS, FILES, land, records
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS, catalog_of, digests, expecting, line

TELLING = replace(
    SHOP, deduplicate=Deduplicate("user", "1d"), outputs={"hourly": HOURLY, "visits": SHOP.outputs["visits"]}
)


def rows(manifest: Manifest) -> dict[str, list[int]]:
    """The rows of each layer of each table."""
    return {name: [layer.rows for layer in layers] for name, layers in manifest.tables.items()}


@on_both
@pytest.mark.parametrize("shop", [SHOP, TELLING], ids=["all", "deduplicated"])
def test_each_output_is_byte_for_byte_what_a_pipeline_of_its_own_gives(
    executor: ExecutorUnderTest, shop: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")  # files are cut by tasks
    roots = {name: tmp_path / name for name in ("together", *shop.outputs)}
    for name, root in roots.items():
        land(root)
        own_output = shop.by_output.get(name)
        (executor if own_output is None else LOCAL).process(own_output or shop, root.as_uri(), RunOptions("run"))
    common_catalog = catalog_of(roots["together"])
    assert [manifest.epoch for manifest in line(common_catalog)] == [*range(FILES)]
    for output in shop.outputs:
        own_output = catalog_of(roots[output])
        for log in ("panes", "late"):
            assert digests(common_catalog, f"{output}/{log}") == digests(own_output, log), (output, log)
        for ours, own in zip(line(common_catalog), line(own_output), strict=True):
            seen_manifest = seen_by(ours, output)
            assert seen_manifest.fingerprint == own.fingerprint
            assert seen_manifest.definition == own.definition
            assert {**seen_manifest.counts} == {**own.counts}
            assert seen_manifest.progress["output_watermarks"] == own.progress["output_watermarks"]
            assert {
                name: [layer.rows for layer in layers] for name, layers in seen_manifest.tables.items() if name != "ids"
            } == {name: [layer.rows for layer in layers] for name, layers in own.tables.items() if name != "ids"}
    check_catalog(open_store(roots["together"].as_uri()), shop.name)


def test_landing_files_are_read_once_however_many_outputs_there_are(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    requested_counts: dict[int, Counter[tuple[str, str]]] = {}
    for number in range(len(SHOP.outputs) + 1):
        requests = requested_counts[number] = Counter[tuple[str, str]]()

        def counting(operation: Operation, requests: Counter[tuple[str, str]] = requests) -> None:
            if operation.path.startswith("landing/"):
                requests[operation.kind, operation.path] += 1

        root = tmp_path / str(number)
        land(root)
        outputs = dict(list(SHOP.outputs.items())[:number])
        with disturb_stores(counting):
            executor.process(replace(SHOP, outputs=outputs) if outputs else CLICKS, root.as_uri(), RunOptions("run"))
    assert sum(times for (kind, _), times in requested_counts[0].items() if kind == "get") >= FILES
    assert requested_counts[1] == requested_counts[2] == requested_counts[3] == requested_counts[0], (
        "as a pipeline with one output without a name"
    )


def test_manifests_and_the_log_are_read_no_more_often_for_more_outputs(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    requested_counts: dict[int, Counter[str]] = {}
    for number in (1, len(SHOP.outputs)):
        requests = requested_counts[number] = Counter[str]()

        def counting(operation: Operation, requests: Counter[str] = requests) -> None:
            folder = operation.path.removeprefix("shop/").partition("/")[0]
            if operation.kind in ("get", "list", "stat") and folder in ("log", "manifests", "index", "log-hint.json"):
                requests[f"{operation.kind} {folder}"] += 1

        root = tmp_path / str(number)
        outputs = dict(list(SHOP.outputs.items())[:number])
        for last in (2, 4):
            land(root, 0, last)
            with disturb_stores(counting):
                executor.process(replace(SHOP, outputs=outputs), root.as_uri(), RunOptions(f"{last}", publish=True))
    assert requested_counts[1].total() > 0
    assert requested_counts[1] == requested_counts[len(SHOP.outputs)]


def test_a_snapshot_has_every_output_and_only_its_own_version_reads_it(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run"))
    head = line(catalog_of(tmp_path))[-1]
    assert head.format == 3
    states = ("hourly/state", "visits/state", "daily/state", "daily/state_1")
    assert {*head.tables} == {*states, *(f"{name}/current" for name in SHOP.outputs)}
    logs = [f"{name}/{log}" for name in SHOP.outputs for log in ("panes", "late")]
    assert {*head.logs} == {*logs, "rejected", "inputs"}
    assert head.counts["records"] == len(records(1))
    assert head.counts["panes"] == sum(head.counts[f"{name}/panes"] for name in SHOP.outputs)
    inputs = {name: {**progress, "upstream": {}} for name, progress in head.progress["inputs"].items()}
    newer = head.replace(progress={**head.progress, "inputs": inputs})
    with pytest.raises(NewerFormatError, match=r"has upstream, which this Headrace does not know: upgrade it"):
        Manifest.from_bytes(newer.to_bytes(), "newer")
    before_names = set_sizes(newest_format=2)
    with (
        before_names,
        pytest.raises(NewerFormatError, match=r"has format [35], this Headrace reads up to 2: upgrade it"),
    ):
        catalog_of(tmp_path).manifest(head.snapshot_id)


def test_one_output_without_a_name_is_stored_as_ever(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    executor.process(CLICKS, tmp_path.as_uri(), RunOptions("run"))
    (head,) = line(catalog_of(tmp_path, CLICKS.name))
    assert head.format == 1
    assert {*head.tables} == {"state", "current"}
    assert {*head.logs} == {"panes", "late", "rejected", "inputs"}
    assert not any("/" in name for name in head.counts)
    assert "outputs" not in {*head.schema, *head.progress, *head.definition}


def test_an_expectation_of_one_output_holds_back_that_one_alone(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    shop = expecting("visits", expect("column_values_to_be_between", column="spent", max_value=1))
    with pytest.raises(AuditFailedError, match=r"pipeline shop\.visits: 1 of 1") as error:
        executor.process(shop, tmp_path.as_uri(), RunOptions("run", publish=True))
    assert "headrace release shop.visits " in str(error.value)
    catalog = catalog_of(tmp_path)
    main = catalog.head().refs["main"]
    assert published_of(catalog.head().refs) == {"hourly": main, "daily": main}
    (entry,) = catalog.list_entries(limit=1)
    assert {*entry.moves} == {"published/hourly", "published/daily"}
    assert entry.detail == {
        "audits": {name: f"shop/audits/{name}/none--{main}" for name in ("hourly", "daily")},
        "success": True,
        "owner": "run",
    }
    reader = hr.open(tmp_path.as_uri())["shop"]
    assert reader["hourly"].current().count()
    assert reader["visits"].current().count() == 0, "nothing of it is published"
    assert snapshot_at(catalog, "published").manifest is None, "of all outputs together nothing"
    good = expecting("visits", expect("column_values_to_be_between", column="spent", max_value=1_000_000))
    result = executor.process(good, tmp_path.as_uri(), RunOptions("again", publish=True))
    assert published_of(catalog.head().refs) == dict.fromkeys(SHOP.outputs, main)
    assert result.published == main
    assert {name: one.audit and one.audit.path for name, one in result.outputs.items()} == {
        "hourly": None,
        "visits": f"shop/audits/visits/none--{main}",
        "daily": None,
    }
    assert reader.fsck().unknown == ()
    assert reader.fsck().problems == ()


def test_readers_of_each_output_see_what_its_own_audits_found_good(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    strict = expecting("visits", expect("column_values_to_be_between", column="spent", max_value=1))
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("first", publish=True))
    catalog = catalog_of(tmp_path)
    first = catalog.head().refs["main"]
    land(tmp_path, 2, 3)
    with pytest.raises(AuditFailedError):
        executor.process(strict, tmp_path.as_uri(), RunOptions("second", publish=True))
    second = catalog.head().refs["main"]
    assert published_of(catalog.head().refs) == {"hourly": second, "visits": first, "daily": second}
    assert snapshot_at(catalog, "published").manifest == catalog.manifest(first), "the oldest of them"
    assert summarize_pipeline(catalog).unpublished == 1
    unpublished_epochs = {line.name: line.unpublished for line in summarize_pipeline(catalog).outputs}
    assert unpublished_epochs == {"hourly": 0, "visits": 1, "daily": 0}
    land(tmp_path, 3, 4)
    with pytest.raises(AuditFailedError, match=rf"visits: .* on \({first}, "):
        executor.process(strict, tmp_path.as_uri(), RunOptions("third", publish=True))
    third = catalog.head().refs["main"]
    shop = hr.open(tmp_path.as_uri())[strict]
    entry = shop.release(third, message="as agreed", output="visits")
    assert entry.moves == {"published/visits": (first, third)}
    result = executor.process(strict, tmp_path.as_uri(), RunOptions("fourth", publish=True))
    assert (result.status, result.published) == ("succeeded", third)
    dry_run = shop.rollback(to=second, dry_run=True)
    assert {*dry_run.moves} == {"main", *(f"published/{name}" for name in SHOP.outputs)}
    assert any("the release by log entry" in line for line in dry_run.told)
    shop.rollback(to=second)
    assert published_of(catalog.head().refs) == {**dict.fromkeys(SHOP.outputs, second), "visits": first}
    check_catalog(open_store(tmp_path.as_uri()), SHOP.name)


def test_a_release_holds_under_another_name(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    few = expect("column_values_to_be_between", column="clicks", max_value=0)
    strict, root = expecting("visits", few), tmp_path.as_uri()
    land(tmp_path, 0, 1)
    with pytest.raises(AuditFailedError):
        executor.process(strict, root, RunOptions("first", publish=True))
    hr.open(root)[strict].release("main", output="visits", message="ada: they clicked")
    outputs = {"hourly": HOURLY, "sessions": replace(strict.outputs["visits"], formerly="visits"), "daily": DAILY}
    renamed_pipeline = replace(SHOP, outputs=outputs)
    land(tmp_path, 1, 2)
    with pytest.raises(AuditFailedError):
        executor.process(renamed_pipeline, root, RunOptions("renamed", publish=True))
    both = replace(renamed_pipeline, outputs={**outputs, "visits": VISITS})
    land(tmp_path, 2, 3)
    with pytest.raises(AuditFailedError):
        executor.process(both, root, RunOptions("another", publish=True))
    catalog = catalog_of(tmp_path)
    (holding_release,) = releases_that_hold(seen_catalog(catalog, "sessions"))
    assert (holding_release.after, "they clicked" in holding_release.message) == (None, True)
    assert releases_that_hold(seen_catalog(catalog, "visits")) == [], "another one has the name now"


def test_limits_of_an_output_hold_back_that_one_alone(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    (tmp_path / "landing" / "clicks").mkdir(parents=True)
    landed_lines = [
        '{"user": null, "at": "2026-01-01T00:00:00Z", "price": 5}',
        '{"user": "a", "at": "2026-01-01T00:00:00Z", "price": 5}',
    ]
    (tmp_path / "landing" / "clicks" / "part-0.jsonl").write_text("\n".join(landed_lines) + "\n")
    limited_output = {
        "hourly": replace(HOURLY, limits=hr.Limits(rejected="50%")),
        "visits": VISITS,
        "daily": DAILY,
    }
    shop = replace(SHOP, outputs=limited_output, limits=hr.Limits(rejected="10%", newest_file="999999d"))
    with pytest.raises(LimitExceededError, match=r"shop\.visits: 1 of 2 limits are exceeded") as error:
        executor.process(shop, tmp_path.as_uri(), RunOptions("run", publish=True))
    assert "shop.hourly" not in str(error.value), "whose own limit counts"
    assert {*published_of(catalog_of(tmp_path).head().refs)} == {"hourly", "daily"}
    with pytest.raises(PipelineError, match="ages are of input that all outputs read"):
        replace(HOURLY, limits=hr.Limits(newest_file="1h"))


def test_readers_name_an_output(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    shop = hr.open(tmp_path.as_uri())["shop"]
    assert {*shop.outputs} == {*SHOP.outputs}
    assert {*shop["hourly"].current().columns} >= {"user", "clicks", "spent"}
    assert "most" in shop["daily"].panes().columns
    assert shop["hourly"].late().count() == 0
    assert shop["visits"].show("main").counts == seen_by(line(catalog_of(tmp_path))[-1], "visits").counts
    with pytest.raises(UnknownOutputError, match=r"no output 'hourl'; did you mean 'hourly'\?"):
        shop["hourl"]
    for read in (shop.current, shop.panes, lambda: shop.diff("main", "published")):
        with pytest.raises(UnknownOutputError, match=r"name one of them, such as shop\.daily"):
            read()
    land(tmp_path / "one", 0, 1)
    executor.process(CLICKS, (tmp_path / "one").as_uri(), RunOptions("run"))
    with pytest.raises(UnknownOutputError, match="one output without a name"):
        PipelineReader(catalog_of(tmp_path / "one", CLICKS.name))["hourly"]


def test_a_dead_letter_says_which_output_could_not_take_it(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    (tmp_path / "landing" / "clicks").mkdir(parents=True)
    landed_lines = [
        '{"user": null, "at": "2026-01-01T00:00:00Z", "price": 5}',
        '{"user": "a", "at": null, "price": 5}',
        '{"user": "a", "at": "2026-01-01T00:00:00Z", "price": 5}',
    ]
    (tmp_path / "landing" / "clicks" / "part-0.jsonl").write_text("\n".join(landed_lines) + "\n")
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run"))
    letters = PipelineReader(catalog_of(tmp_path))["daily"].rejected(at="main").to_arrow().to_pylist()
    assert sorted((row["output"] or "", row["position"], row["reason"]) for row in letters) == [
        ("", 1, "event time is null"),
        ("hourly", 0, "key is null: user"),
        ("visits", 0, "key is null: user"),
    ]
    (head,) = line(catalog_of(tmp_path))
    assert [head.counts[f"{name}/rejected"] for name in SHOP.outputs] == [2, 2, 1]
    assert [head.counts[f"{name}/accepted"] for name in SHOP.outputs] == [1, 1, 2]
    assert head.counts["rejected"] == len(letters)


CHANGES: dict[str, dict[str, Output]] = {
    "one more": {**SHOP.outputs, "more": HOURLY},
    "one less": {"hourly": HOURLY},
    "another meaning": {**SHOP.outputs, "daily": replace(DAILY, filter=col("price") > 4)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_outputs_are_computed_again_by_a_backfill(
    executor: ExecutorUnderTest, change: str, tmp_path: Path
) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    outputs = CHANGES[change]
    changed_pipeline = replace(SHOP, outputs=outputs)
    land(tmp_path, 2, 3)
    result = executor.backfill(changed_pipeline, tmp_path.as_uri(), RunOptions("again", branch="again"))
    hr.open(tmp_path.as_uri())[changed_pipeline.name].promote(result.branch)
    shop = hr.open(tmp_path.as_uri())["shop"]
    assert {*shop.outputs} == {*outputs}
    assert all(shop[name].current().count() for name in outputs if name != "daily"), "whose day has not ended"
    land(tmp_path, 3, 4)
    assert (
        executor.process(changed_pipeline, tmp_path.as_uri(), RunOptions("on", publish=True)).counts["input_files"] == 1
    )
    check_catalog(open_store(tmp_path.as_uri()), SHOP.name)


def test_a_summary_is_due_when_the_first_output_is(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    head = line(catalog_of(tmp_path))[-1]
    due = [seen_by(head, name).progress["next_event_time_deadline"] for name in SHOP.outputs]
    assert len({*due}) > 1
    summary = summarize_pipeline(catalog_of(tmp_path))
    assert (summary.fires_after, summary.fires_at) == (min(one for one in due if one is not None), None)
    with pytest.raises(UnknownOutputError, match="hourly"):
        PaneHistory(catalog_of(tmp_path), head, 10)


def test_a_column_is_renamed_in_one_output(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root, undisturbed_root = tmp_path / "renamed", tmp_path / "undisturbed"
    visits = replace(VISITS, what={"number": count(), "spent": col("price").sum()}, renamed={"clicks": "number"})
    for last, shop in ((2, SHOP), (4, replace(SHOP, outputs={**SHOP.outputs, "visits": visits}))):
        land(root, 0, last)
        executor.process(shop, root.as_uri(), RunOptions(f"until-{last}", publish=True))
    land(undisturbed_root, 0, 4)
    executor.process(SHOP, undisturbed_root.as_uri(), RunOptions("run", publish=True))
    now, rows_before = (
        sorted((row["user"], row["window_start"], row[name]) for row in visits_at(place).to_pylist())
        for place, name in ((root, "number"), (undisturbed_root, "clicks"))
    )
    assert now == rows_before


def visits_at(root: Path) -> pa.Table:
    """What readers see of the output "visits"."""
    return hr.open(root.as_uri())["shop"]["visits"].current().to_arrow()


def test_what_is_of_one_output_is_refused_where_there_are_several(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    executor.backfill(SHOP, tmp_path.as_uri(), RunOptions("again", branch="again"))
    shop = hr.open(tmp_path.as_uri())[SHOP]
    refused_calls: dict[str, Any] = {
        "name one of them": shop.plot,
    }
    for why, call in refused_calls.items():
        with pytest.raises(HeadraceError, match=why):
            call()
    with pytest.raises(SeveralOutputsError, match=r"such as shop\.hourly"):
        SHOP.stages  # noqa: B018


def test_a_rehearsal_shows_what_readers_of_each_output_would_see_change(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    double_output = Output(key="user", what={"clicks": count(), "spent": (col("price") * 2).sum()}, where=HOURLY.where)
    changed_pipeline = replace(
        SHOP, outputs={**SHOP.outputs, "hourly": replace(double_output, when=HOURLY.when, how=HOURLY.how)}
    )
    executor.backfill(changed_pipeline, tmp_path.as_uri(), RunOptions("again", branch="again"))
    rehearsal = hr.open(tmp_path.as_uri())[SHOP].promote("again", dry_run=True)
    assert rehearsal.refusals == ()
    assert {output: bool(diff.output.rows.changed) for output, diff in rehearsal.diffs.items()} == {
        "hourly": True,
        "visits": False,
        "daily": False,
    }
    assert {*rehearsal.to_json()["outputs"]} == {*SHOP.outputs}
    reader_rehearsal = rehearse_for_readers(catalog_of(tmp_path), "again")
    assert reader_rehearsal.outputs == {output: diff.output for output, diff in rehearsal.diffs.items()}


def test_an_output_that_only_a_branch_has_is_read_there(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    more = replace(SHOP, outputs={**SHOP.outputs, "often": HOURLY})
    executor.backfill(more, tmp_path.as_uri(), RunOptions("again", branch="again"))
    shop = hr.open(tmp_path.as_uri())["shop"]
    assert shop["often"].current(at="again").to_arrow() == shop["hourly"].current(at="again").to_arrow()
    with pytest.raises(UnknownOutputError, match="often"):
        shop["often"].current()
    with pytest.raises(UnknownOutputError, match="ofen"):
        shop["ofen"]


def test_what_is_computed_of_an_output_is_published_with_it(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Never before it: a day would have sums of hours whose audit failed."""
    of_hours = Output(of="hourly", what={"spent": col("spent").sum()}, where=CalendarWindows("day"), when=HOURLY.when)
    outputs = {"visits": VISITS, "days": of_hours, "hourly": HOURLY}
    shop = replace(SHOP, outputs=outputs)
    refused_expectations = [expect("column_values_to_be_between", column="spent", max_value=1)]
    strict = replace(shop, outputs={**outputs, "hourly": replace(HOURLY, expectations=refused_expectations)})
    catalog = catalog_of(tmp_path)
    land(tmp_path, 0, 1)
    executor.process(shop, tmp_path.as_uri(), RunOptions("first", publish=True))
    first = catalog.head().refs["main"]
    land(tmp_path, 1, 2)
    with pytest.raises(AuditFailedError, match=r"pipeline shop\.hourly: ") as error:
        executor.process(strict, tmp_path.as_uri(), RunOptions("second", publish=True))
    assert "shop.days" not in str(error.value)
    second = catalog.head().refs["main"]
    assert published_of(catalog.head().refs) == {"visits": second, "days": first, "hourly": first}
    handle = hr.open(tmp_path.as_uri())[strict]
    with pytest.raises(UpstreamUnpublishedError, match=r"computed of hourly.*headrace release shop\.hourly"):
        handle.release(second, message="ada", output="days")
    with pytest.raises(UpstreamUnpublishedError, match="output days of shop is computed of hourly"):
        handle.publish("days")
    handle.release(second, message="ada: it was a sale", output="hourly")
    assert published_of(catalog.head().refs)["days"] == first
    land(tmp_path, 2, 3)
    with pytest.raises(AuditFailedError):
        executor.process(strict, tmp_path.as_uri(), RunOptions("third", publish=True))
    third = catalog.head().refs["main"]
    assert published_of(catalog.head().refs) == {"visits": third, "days": second, "hourly": second}, "as far as hours"
    (entry,) = catalog.list_entries(limit=1)
    assert entry.detail["audits"]["days"] == f"shop/audits/days/{first}--{second}"
    assert handle.fsck().problems == ()
    entry = handle.release(third, message="ada: all of it")
    assert {*entry.moves} == {"published/days", "published/hourly"}
    assert handle.publish().published == third


def test_recovered_and_forked_all_outputs_go_together(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 4)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run", publish=True))
    catalog = catalog_of(tmp_path)
    snapshots = [manifest.snapshot_id for manifest in line(catalog)]
    digests_before = {output: digests(catalog, f"{output}/panes") for output in SHOP.outputs}
    handle = hr.open(tmp_path.as_uri())[SHOP]
    entry = handle.fork(snapshots[1], "mine")
    assert entry.refs["mine"] == snapshots[1]
    result = handle.run(branch="mine", executor="local")
    assert (len(result.epochs), {one.published for one in result.outputs.values()}) == (2, {snapshots[3]})
    handle.release(snapshots[1], message="looked at")
    given_up = with_epochs(catalog, handle.rollback(to=snapshots[1], dry_run=True))
    assert all(re.search(rf"2 epochs with \d+ panes of {output}", given_up.told[1]) for output in SHOP.outputs)
    recovered_result = handle.recover(snapshots[1], executor="local")
    assert recovered_result.published == recovered_result.snapshot != snapshots[3]
    assert {output: digests(catalog, f"{output}/panes") for output in SHOP.outputs} == digests_before
    check_catalog(open_store(tmp_path.as_uri()), SHOP.name)


def test_a_manifest_seen_by_an_output_names_no_other(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    executor.process(SHOP, tmp_path.as_uri(), RunOptions("run"))
    (head,) = line(catalog_of(tmp_path))
    seen_manifest = seen_by(head, "hourly")
    assert Manifest.from_bytes(seen_manifest.to_bytes(), "seen").format == 1
    manifest_text = seen_manifest.to_bytes().decode()
    assert "visits" not in manifest_text.replace(os.fspath(tmp_path), "")
