"""Commands that move refs: tag and drop; backfill and recover, over real runs of the executor local."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import headrace as hr
from headrace.cli.main import app
from headrace.read.snapshots.snapshot_refs import NoSnapshotError
from headrace.runs.publishing.promotion import BranchBehindError, ForkGivenUpError, rehearse_for_readers
from headrace_lab.fault_plans import HoldRequest, Operation, disturb_stores
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.protocol import transitions
from headrace_snapshots.store import open_store
from tests.cli.deployments import PIPELINE_FILE, Deployment, pane

pytestmark = pytest.mark.slow  # whole runs


_BILLS = """
from datetime import datetime
import headrace as hr
bills = hr.Pipeline(
    "bills",
    hr.json("landing", {{"amount": int, "at": datetime}}).event_time("at", bound="1m"),
    rows={{"{name}": hr.col("amount")}},
    renamed={{"amount": "{name}"}} if "{name}" != "amount" else {{}},
    executor="local",
)
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made_deployment = Deployment(tmp_path)
    made_deployment.commit(panes=[pane("ann", 1, 2)])
    made_deployment.commit(panes=[pane("bob", 1, 3)])
    return made_deployment


class Live:
    """A pipeline whose input lands file by file."""

    def __init__(self, folder: Path) -> None:
        self.reference = str(folder / "clicks.py")
        Path(self.reference).write_text(PIPELINE_FILE)
        self.root = (folder / "root").as_uri()
        self.landing = folder / "root" / "landing" / "clicks"
        self.landing.mkdir(parents=True)
        self.catalog = Catalog(open_store(self.root), "clicks")

    def land(self, name: str, hour: int) -> None:
        row = {"user": "ann", "at": f"2026-01-01T{hour:02}:00:00Z", "amount": hour}
        (self.landing / name).write_text(json.dumps(row) + "\n")

    def headrace(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [command, self.reference, *arguments, "--root", self.root])

    def run(self, command: str, *arguments: str) -> Any:
        """The result of a command that runs epochs and succeeds."""
        result = self.headrace(command, *arguments, "--executor", "local", "--format", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    @property
    def refs(self) -> dict[str, str]:
        return dict(self.catalog.head().refs)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """Two epochs of one file each, published one by one."""
    deployment = Live(tmp_path)
    for number, name in enumerate(("a.jsonl", "b.jsonl")):
        deployment.land(name, number)
        assert len(deployment.run("run")["epochs"]) == 1
    return deployment


def headrace(deployment: Deployment, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [command, deployment.reference, *arguments, "--root", deployment.root])


def test_a_tag_names_main_or_any_snapshot_and_is_dropped_by_its_name(deployment: Deployment) -> None:
    newest, first = (
        manifest.snapshot_id for manifest in deployment.catalog.ancestry(deployment.catalog.head().refs["main"])
    )
    assert headrace(deployment, "tag", "now").exit_code == 0
    assert headrace(deployment, "tag", "then", first).exit_code == 0
    assert headrace(deployment, "tag", "same", "then").exit_code == 0
    assert deployment.catalog.head().refs == {
        "main": newest,
        "tags/now": newest,
        "tags/then": first,
        "tags/same": first,
    }
    result_again = headrace(deployment, "tag", "then")
    assert result_again.exit_code == 10
    assert "there is a tag then already" in result_again.stderr
    dropped_result = headrace(deployment, "drop", "then")
    assert dropped_result.exit_code == 0
    standing = dropped_result.stdout.split("what still stands")[1]
    assert all(name in standing for name in ("main", "tags/now", "tags/same", newest))
    assert "tags/then" not in standing
    rehearsed_result = headrace(deployment, "rollback", "--to", "same", "--dry-run")
    assert f"main: {newest} → {first}" in " ".join(rehearsed_result.stdout.split())
    assert deployment.catalog.head().refs["main"] == newest
    assert headrace(deployment, "rollback", "--to", "same").exit_code == 0
    assert deployment.catalog.head().refs["main"] == first


def test_a_tag_is_called_as_nothing_else_is(deployment: Deployment) -> None:
    newest, first = (
        manifest.snapshot_id for manifest in deployment.catalog.ancestry(deployment.catalog.head().refs["main"])
    )
    deployment.catalog.fork("trial", newest)
    for name in (first, first.upper(), "beginning", "none", "main", "published", "trial", "2026-11-21", "tags/x"):
        refused_result = headrace(deployment, "tag", name)
        assert refused_result.exit_code == 10, name
        assert "cannot name a branch or tag" in refused_result.stderr or "would name" in refused_result.stderr
    for words in (["tag", "x", "2026-11-21"], ["recover", "2026-11-21"], ["rollback", "--to", "2026-11-21"]):
        unknown = headrace(deployment, *words)
        assert unknown.exit_code == 10
        assert "'2026-11-21' is a time, which names no snapshot here" in " ".join(unknown.stderr.split())
    for ref in ("beginning", "0" * 16, "mian"):
        assert headrace(deployment, "read", "--at", ref).exit_code == 10
    assert deployment.catalog.head().refs.keys() == {"main", "trial"}


def test_names_of_before_show_nobody_another_snapshot(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tags could be called once: they are found as tags/NAME, and dropped."""
    newest, first = (
        manifest.snapshot_id for manifest in deployment.catalog.ancestry(deployment.catalog.head().refs["main"])
    )
    names = (first, "beginning", "2026-11-21")
    with monkeypatch.context() as patch:
        patch.setattr(transitions, "why_not", lambda name: None)
        for name in names:
            deployment.catalog.tag(name, newest)

    def count_rows(ref: str) -> Any:
        result = headrace(deployment, "read", "--view", "panes", "--at", ref, "--format", "json")
        return len(json.loads(result.stdout)) if result.exit_code == 0 else None

    assert [count_rows(ref) for ref in names] == [1, None, None]
    for name in names:
        assert count_rows(f"tags/{name}") == 2
        assert headrace(deployment, "drop", f"tags/{name}").exit_code == 0
    gone_result = headrace(deployment, "drop", "beginning")
    assert gone_result.exit_code == 10
    assert "there is no branch or tag beginning; those that can be dropped: none" in gone_result.stderr


def test_recover_goes_back_and_reads_the_rest_again(live: Live) -> None:
    newest, first = (manifest.snapshot_id for manifest in live.catalog.ancestry(live.refs["main"]))
    result = live.run("recover", first)
    assert result["action"] == "recover"
    assert result["epochs"] == [1]
    assert live.refs == {"main": result["snapshot"], "published": result["snapshot"]}
    assert newest not in live.refs.values()
    assert live.run("recover", first, "--no-publish")["published"] == first


def test_backfill_makes_a_branch_main_and_published(live: Live) -> None:
    refs_before = live.refs
    text = live.headrace("backfill", "--executor", "local", "--files-per-epoch", "1")
    assert text.exit_code == 0, text.output
    (branch,) = live.refs.keys() - refs_before
    assert {name: live.refs[name] for name in refs_before} == refs_before, "main and its readers are where they were"
    assert f"--branch {branch} --executor local --promote" in text.stderr
    compare = next(line for line in text.stderr.splitlines() if "headrace diff" in line)
    program, *words = shlex.split(compare.partition(": ")[2])
    assert (program, CliRunner().invoke(app, words).exit_code) == ("headrace", 0)
    result = live.run("backfill", "--branch", branch, "--promote")
    assert result["action"] == "cut_over"
    assert result["epochs"] == [0, 1]
    assert live.refs == dict.fromkeys(("main", "published"), result["snapshot"])
    assert result["snapshot"] not in refs_before.values()


def test_a_run_that_fell_back_says_so(tmp_path: Path) -> None:
    """A file of state is lost, twice, while readers see nothing of it."""
    live = Live(tmp_path)
    live.land("a.jsonl", 0)
    live.run("run", "--no-publish")
    for number, format_ in enumerate(("text", "json"), 1):
        head = live.catalog.manifest(live.refs["main"])
        lost_path = head.tables["state"][-1].files[0].path
        (tmp_path / "root" / lost_path).unlink()
        live.land(f"{number}.jsonl", number)
        result = live.headrace("run", "--executor", "local", "--no-publish", "--format", format_)
        assert result.exit_code == 0, result.output
        warnings = result.stdout.splitlines()[-1:] if format_ == "text" else json.loads(result.stdout)["warnings"]
        (warning,) = (text.removeprefix("warning: ") for text in warnings)
        sentence = (
            f"snapshot {head.snapshot_id} (epoch {head.epoch}) cannot be restored: {live.root}/{lost_path} is missing"
        )
        assert warning.startswith(f"clicks: {sentence}")
        assert "Branch main fell back to" in warning


def test_a_backfill_of_a_range_forks_before_it(live: Live) -> None:
    first = [manifest.snapshot_id for manifest in live.catalog.ancestry(live.refs["main"])][-1]
    range_ = ("--from", "2026-01-01T01:00:00Z", "--to", "2026-01-02")
    result = live.run("backfill", *range_, "--branch", "fix")
    assert (result["forked_from"], result["epochs"], result["counts"]["records"]) == (first, [1], 1)
    assert live.run("backfill", *range_, "--branch", "fix", "--promote")["epochs"] == [1]
    assert live.refs == dict.fromkeys(("main", "published"), result["snapshot"])


@contextmanager
def main_goes_on(live: Live, times: int) -> Iterator[None]:
    """Inside, so many times main reads a file more while the result of a backfill is stored, before its cut-over."""
    landed_names: list[str] = []
    is_running = False

    def go_on() -> None:
        nonlocal is_running
        is_running = True
        name = f"meanwhile-{len(landed_names)}.jsonl"
        live.land(name, 5 + len(landed_names))
        live.run("run")
        landed_names.append(name)
        is_running = False

    def plan(operation: Operation) -> HoldRequest | None:
        is_due = operation.path.startswith("clicks/runs/") and operation.kind in {"put", "create"}
        return HoldRequest(go_on) if is_due and not is_running and len(landed_names) < times else None

    with disturb_stores(plan):
        yield
    assert len(landed_names) == times


def test_a_backfill_catches_up_with_a_main_that_went_on(live: Live) -> None:
    with main_goes_on(live, 1):
        result = live.headrace("backfill", "--executor", "local", "--promote", "--format", "json")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("catching up") == 1
    assert json.loads(result.stdout)["counts"]["records"] == 3


def test_a_backfill_that_fails_says_how_to_go_on(live: Live) -> None:
    with main_goes_on(live, 2):
        result = live.headrace("backfill", "--branch", "again", "--executor", "local", "--promote")
    assert result.exit_code == 30
    text_there = f"{live.reference} --root {live.root} --branch again --executor local --promote"
    assert f"to go on where it stopped: headrace backfill {text_there}" in result.stderr.splitlines()


def test_a_backfill_that_has_no_branch_yet_names_none(live: Live) -> None:
    (live.landing / "a.jsonl").unlink()
    result = live.headrace("backfill", "--executor", "local")
    assert "1 files are gone" in result.stderr
    assert "to go on" not in result.stderr


@pytest.mark.parametrize("size", [("--files-per-epoch", "1"), ("--bytes-per-epoch", "1")])
def test_a_backfill_in_small_epochs_keeps_what_main_accepted(tmp_path: Path, size: tuple[str, str]) -> None:
    """An epoch has a file that is older than the one before it by more than the bound."""
    live = Live(tmp_path)
    strict = PIPELINE_FILE.replace('allowed_lateness="1d"', 'allowed_lateness="0s"')
    Path(live.reference).write_text(strict)
    for name, hour in (("a.jsonl", 5), ("b.jsonl", 0)):
        live.land(name, hour)
    assert live.run("run")["counts"]["late_dropped"] == 0
    live.land("c.jsonl", 1)
    assert live.run("run")["counts"]["late_dropped"] == 1
    stdout_before = live.headrace("read", "--format", "json").stdout
    result = live.run("backfill", "--promote", *size)
    assert (result["counts"]["late_dropped"], result["epochs"]) == (1, [0, 1])
    pairs_after = [
        (row["window_start"], row["clicks"]) for row in json.loads(live.headrace("read", "--format", "json").stdout)
    ]
    assert pairs_after == [(row["window_start"], row["clicks"]) for row in json.loads(stdout_before)]
    assert len(pairs_after) == 2


def test_a_range_begins_at_what_is_kept_while_an_expiry_is_under_way(live: Live) -> None:
    """Its first part has marked the first snapshot, its second has not deleted it yet."""
    live.land("c.jsonl", 4)
    live.run("run")
    assert live.headrace("expire", "--keep-last", "1").exit_code == 0
    assert live.run("backfill", "--from", "2026-01-01T01:00:00Z", "--branch", "early")["forked_from"] is None
    kept_main = live.refs["main"]
    assert live.run("backfill", "--from", "2026-01-01T05:00:00Z", "--branch", "new")["forked_from"] == kept_main


def test_a_backfill_before_anything_has_landed_has_nothing_to_promote(tmp_path: Path) -> None:
    live = Live(tmp_path)
    for promote in ((), ("--promote",)):
        result = live.headrace("backfill", "--executor", "local", *promote)
        assert result.exit_code == 0, result.output
        assert "there was nothing new to process" in result.stdout
        assert "promote" not in result.stderr
    assert not live.refs


def test_a_backfill_makes_no_root(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.root = (tmp_path / "mistaken").as_uri()
    result = live.headrace("backfill", "--executor", "local")
    assert result.exit_code == 10
    assert not (tmp_path / "mistaken").exists()


def test_a_clock_that_passes_the_end_of_the_calendar_is_refused(live: Live) -> None:
    clock = ("--clock", "9999-12-31T00:00:00Z", "--clock-step", "999d", "--files-per-epoch", "1")
    result = live.headrace("run", "--mode", "replay", "--branch", "late", *clock, "--executor", "local")
    assert result.exit_code == 10, result.output
    assert "passes the year 9999" in result.stderr


def test_diff_says_what_readers_would_see_change(live: Live) -> None:
    old_snapshot = live.refs["published"]
    live.land("c.jsonl", 0)
    live.run("run")
    result = live.headrace("diff", old_snapshot, "published")
    assert result.exit_code == 0, result.output
    assert "landing/clicks/c.jsonl" in result.stdout
    assert "1 of 1 rows that readers see change" in result.stderr
    document = json.loads(live.headrace("diff", old_snapshot, "published", "--format", "json").stdout)
    assert document["output"]["rows"] == {**document["output"]["rows"], "added": 0, "removed": 0, "changed": 1}
    (row,) = document["output"]["first"]
    assert (row["kind"], row["key"]["window_start"]) == ("changed", "2026-01-01T00:00:00Z")
    assert (row["before"]["clicks"], row["after"]["clicks"]) == (1, 2)
    nothing = json.loads(live.headrace("diff", "main", "published", "--format", "json").stdout)
    assert nothing["output"]["first"] == []
    assert nothing["before"] == nothing["after"]


def test_diff_says_that_rows_with_different_columns_cannot_be_compared(tmp_path: Path) -> None:
    bills = tmp_path / "bills.py"
    (tmp_path / "landing").mkdir()
    for name in ("amount", "total"):
        bills.write_text(_BILLS.format(name=name))
        (tmp_path / "landing" / f"{name}.json").write_text('{"amount": 3, "at": "2026-01-01T00:00:00Z"}\n')
        result = CliRunner().invoke(app, ["run", str(bills), "--root", tmp_path.as_uri()])
        assert result.exit_code == 0, result.output
    first = next(iter(hr.open(tmp_path.as_uri())["bills"].snapshots().to_json()))["snapshot"]
    result = CliRunner().invoke(app, ["diff", str(bills), first, "main", "--root", tmp_path.as_uri()])
    assert result.exit_code == 0, result.output
    assert "rows with different columns. So their rows of current cannot be compared" in result.stderr


def test_a_fork_is_run_beside_main_and_promoted(live: Live) -> None:
    """The same by the command line and by Python: fork, look at what a promotion would do, promote."""
    first = next(m.snapshot_id for m in live.catalog.ancestry(live.refs["main"]) if m.epoch == 0)
    live.catalog.tag("start", first)
    forked_document = json.loads(live.headrace("fork", "start", "trial", "--format", "json").stdout)
    assert forked_document["moves"] == {"trial": [None, first]}
    refs_before = live.refs
    live.land("c.jsonl", 1)
    live.run("run", "--branch", "trial")
    assert {name: live.refs[name] for name in ("main", "published")} == {
        n: refs_before[n] for n in ("main", "published")
    }
    entries = live.catalog.head().entry
    result = live.headrace("promote", "trial", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "1 of 1 rows that readers see change" in result.stderr
    assert f"it would make branch trial, at snapshot {live.refs['trial']} (epoch " in result.stderr
    assert f"is against the promotion: headrace promote {live.reference} trial --root {live.root}" in result.stderr
    rehearsal = json.loads(live.headrace("promote", "trial", "--dry-run", "--format", "json").stdout)
    assert rehearsal["refusals"] == []
    (row,) = rehearsal["diff"]["output"]["first"]
    assert (row["kind"], row["before"]["clicks"], row["after"]["clicks"]) == ("changed", 1, 2)
    assert live.catalog.head().entry == entries, "a dry run moves nothing"
    head = live.refs["trial"]
    result = live.headrace("promote", "trial", "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["published"] == head
    assert live.refs == {"main": head, "published": head, "tags/start": first}
    result_again = live.headrace("promote", "trial")
    assert result_again.exit_code == 0, "a promotion that was done is told again"


def test_a_promotion_that_is_refused_says_why_and_moves_nothing(live: Live) -> None:
    live.catalog.fork("trial", live.refs["main"])
    live.land("c.jsonl", 3)
    live.run("run")
    head_before = live.catalog.head()
    result = live.headrace("promote", "trial", "--dry-run")
    assert result.exit_code == 0
    assert "would be refused: branch trial of clicks has not read 1 files that main has" in result.stderr
    assert "nothing is against it" not in result.stderr
    (refusal,) = json.loads(live.headrace("promote", "trial", "--dry-run", "--format", "json").stdout)["refusals"]
    assert (refusal["code"], refusal["remedy"]) == ("retry.branch_behind", "retry")
    assert live.headrace("promote", "trial").exit_code == BranchBehindError("").exit_code
    assert live.catalog.head() == head_before
    for name in ("main", "published", "nowhere"):
        for options in ((), ("--dry-run",)):
            refused_result = live.headrace("promote", name, *options)
            assert refused_result.exit_code == 10
            assert "beside main; branches: trial" in refused_result.stderr


def test_a_branch_patches_what_is_over_on_main(live: Live) -> None:
    for name, day in (("c.jsonl", 5), ("d.jsonl", 1)):
        row = {"user": "ann", "at": f"2026-01-{day:02}T00:30:00Z", "amount": 100}
        (live.landing / name).write_text(json.dumps(row) + "\n")
        live.run("run", "--files-per-epoch", "1")
    live.run("backfill", "--branch", "fix")
    entries, rows = live.catalog.head().entry, hr.open(live.root)["clicks"].current().count()
    result = live.headrace("promote", "fix", "--patch", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "1 of 1 rows that readers see change" in result.stderr
    assert "it would replace rows by those of branch fix where windows have expired on both, as epoch " in result.stderr
    assert (
        f"is against the promotion: headrace promote {live.reference} fix --root {live.root} --patch" in result.stderr
    )
    rehearsal = json.loads(live.headrace("promote", "fix", "--patch", "--dry-run", "--format", "json").stdout)
    assert (rehearsal["branch"], rehearsal["refusals"], rehearsal["left"]) == ("fix", [], {})
    numbers = rehearsal["output"]["rows"]
    assert (numbers["before"], numbers["after"], numbers["changed"]) == (rows, rows, 1)
    (row,) = rehearsal["output"]["first"]
    assert (row["before"]["amount"], row["after"]["amount"], row["after"]["timing"]) == (0, 100, "LATE")
    assert live.catalog.head().entry == entries, "a dry run moves nothing"
    document = json.loads(live.headrace("promote", "fix", "--patch", "--format", "json").stdout)
    assert (document["action"], document["epochs"], document["counts"]["panes"]) == ("patch", [4], 1)
    assert live.refs["main"] == live.refs["published"] == document["snapshot"]
    result_again = live.headrace("promote", "fix", "--patch")
    assert result_again.exit_code == 0, result_again.output
    assert "0 epochs: nothing differs where windows have expired" in result_again.output
    shown_result = CliRunner().invoke(app, ["show", live.reference, "main", "--root", live.root])
    assert f"epoch 4, by branch fix at {live.refs['fix']}" in shown_result.stdout
    live.headrace("fork", "main", "same")
    same = json.loads(live.headrace("promote", "same", "--patch", "--dry-run", "--format", "json").stdout)
    numbers = same["output"]["rows"]
    assert (numbers["before"], numbers["after"], numbers["changed"]) == (rows, rows, 0), "nothing differs"
    parent_before = live.catalog.manifest(document["snapshot"]).parent
    lost_text = "the patch of epoch 4, by branch fix, is given up"
    assert lost_text in live.headrace("rollback", "--to", str(parent_before), "--dry-run").stderr
    dry = json.loads(live.headrace("rollback", "--to", str(parent_before), "--dry-run", "--format", "json").stdout)
    assert [patch["branch"] for patch in dry["patches"]] == ["fix"]
    assert live.refs["main"] == document["snapshot"], "a dry run moves nothing"
    assert lost_text in live.headrace("rollback", "--to", str(parent_before)).stderr
    assert live.headrace("promote", "fix", "--patch").exit_code == 0
    live.run("run", "--branch", "fix")
    live.land("e.jsonl", 3)
    live.run("run")
    refused_result = live.headrace("promote", "fix", "--patch")
    assert refused_result.exit_code == BranchBehindError("").exit_code
    assert "would be refused: branch fix" in live.headrace("promote", "fix", "--patch", "--dry-run").stderr


def test_python_moves_as_the_commands_do(live: Live) -> None:
    clicks = hr.open(live.root)["clicks"]
    newest, first = (manifest.snapshot_id for manifest in live.catalog.ancestry(live.refs["main"]))
    assert clicks.fork(newest, "trial").moves == {"trial": (None, newest)}
    with pytest.raises(RefusedError, match="a branch trial already"):
        clicks.fork(newest, "trial")
    live.catalog.fork("empty", None)
    with pytest.raises(NoSnapshotError, match="nothing can be forked"):
        clicks.fork("empty", "other")
    entry = clicks.rollback(to=first, message="a wrong file")
    assert entry.message == "a wrong file"
    assert {live.refs[name] for name in ("main", "published")} == {first}
    refusals = clicks.promote("trial", dry_run=True).refusals
    assert [type(each) for each in refusals] == [ForkGivenUpError]
    with pytest.raises(ForkGivenUpError):
        clicks.promote("trial")
    clicks.fork(first, "other")
    live.run("run", "--branch", "other")
    rehearsal, seen_rehearse = clicks.promote("other", dry_run=True), rehearse_for_readers(live.catalog, "other")
    assert rehearsal.diff.output.rows.added == 1
    assert (seen_rehearse.outputs, seen_rehearse.refusals) == ({"": rehearsal.diff.output}, rehearsal.refusals)
    assert clicks.promote("other").published == live.refs["published"] == live.refs["main"]
    assert clicks.rollback(to="beginning").refs.get("main") is None


def test_a_run_behind_a_rollback_says_which_files_are_gone(live: Live) -> None:
    clicks, first = hr.open(live.root)["clicks"], live.refs["main"]
    for number, name in enumerate(("e.jsonl", "f.jsonl")):
        live.land(name, 3 + number)
        live.run("run")
    clicks.rollback(to=first, message="a wrong price")
    (live.landing / "e.jsonl").unlink()
    (live.landing / "f.jsonl").unlink()
    for _ in range(2):  # as long as nothing has been committed
        [warning] = live.run("run")["warnings"]
        assert "2 files that had been read by then cannot be read again" in warning
        assert "e.jsonl" in warning
    live.land("e.jsonl", 3)
    [warning] = live.run("run")["warnings"]
    assert "1 file that had been read by then" in warning
    assert "f.jsonl" in warning
    live.land("f.jsonl", 4)
    assert live.run("run")["warnings"] == []


def test_a_run_behind_a_rollback_reads_again_what_is_there(live: Live) -> None:
    hr.open(live.root)["clicks"].rollback(to="beginning", message="all of it")
    result = live.run("run")
    assert (result["warnings"], result["counts"]["input_files"]) == ([], 2)
