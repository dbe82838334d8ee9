"""What a notebook shows of views, and what methods do to it: they print nothing, and an interrupt ends them."""

import _thread
import signal
import threading
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import FixConfigError
from headrace.pipeline.loading.registry import UnknownPipelineError
from headrace.read.pipeline_reader import MissingRootError
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.reporting.listener import Silent
from headrace.testing import TemporaryDeployment
from headrace_lab.fault_plans import Fault, Operation, disturb_stores
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import StoreUnavailableError

CLICKS_INPUT = hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int}).event_time("at", bound="0s")
CLICKS = hr.Pipeline(
    "clicks",
    CLICKS_INPUT,
    key="user",
    what={"n": hr.count()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    executor="local",
)
HOURS = 4


def land(folder: Path, *users: str) -> TemporaryDeployment:
    """A file for each of the hours, with a click of each user."""
    deployment = TemporaryDeployment(folder)
    for number in range(HOURS):
        time = f"2026-01-01T{number:02}:00:00Z"
        deployment.land(CLICKS, *({"user": user, "at": time, "amount": 1} for user in users))
    return deployment


def open_handle(deployment: TemporaryDeployment) -> PipelineHandle:
    return hr.open(deployment.root)[CLICKS]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> PipelineHandle:
    """An epoch for each hour."""
    deployment = land(tmp_path_factory.mktemp("notebooks"), "ann", "<b>bob</b>\x1b[2J")
    open_handle(deployment).run(files_per_epoch=1)
    return open_handle(deployment)


@pytest.mark.slow
def test_a_view_shows_its_first_rows_as_text_how_many_there_are_and_of_which_snapshot(clicks: PipelineHandle) -> None:
    head = clicks.show("published")
    shown_html = clicks.current()._repr_html_()
    assert "&lt;b&gt;bob&lt;/b&gt;" in shown_html
    assert "<b>bob" not in shown_html
    assert "\x1b" not in shown_html
    assert f"current of clicks at {head.snapshot_id} (epoch {HOURS - 1}): all {2 * HOURS} rows" in shown_html
    assert shown_html.count("<tr>") == 2 * HOURS + 1
    assert f"the first 10 of {len(clicks.panes())} rows" in clicks.panes()._repr_html_()
    assert f": the first of {len(clicks.panes())} rows>" in repr(clicks.panes().head(1))
    assert ": the first row>" in repr(clicks.current(where="n > 0").head(1))
    assert f"all {HOURS} rows" in clicks.current(where="\"user\" = 'ann'")._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("view", ["current", "panes", "late", "rejected", "snapshots", "state"])
def test_head_is_the_beginning_of_the_view_and_len_its_number_of_rows(clicks: PipelineHandle, view: str) -> None:
    rows = clicks.snapshots() if view == "snapshots" else clicks.read(view, at="main")
    every, number = rows.first(10**6)
    assert len(rows) == number == rows.to_arrow().num_rows == len(rows.to_json())
    assert rows
    for n in (0, 1, 3, number, number + 1):
        head = rows.head(n)
        assert [*head] == every[:n]
        assert head.number in {number, None}
        assert len(head) == min(n, number)
        assert len(repr(head).splitlines()) == 1 + len(head)
    with pytest.raises(FixConfigError, match="head"):
        rows.head(-1)


@pytest.mark.slow
def test_only_files_of_the_first_rows_are_read_of_a_log(clicks: PipelineHandle) -> None:
    read_paths: list[str] = []

    def note_read(operation: Operation) -> None:
        if operation.kind == "get" and "/data/" in operation.path:
            read_paths.append(operation.path)

    with disturb_stores(note_read):
        panes = hr.open(clicks.root)[CLICKS].panes()
        panes.head(2)
        assert len({*read_paths}) == 1
        read_paths.clear()
        len(panes)
        assert read_paths == [], "the manifest knows the number of all"
        panes.to_arrow()
        assert len({*read_paths}) == HOURS


@pytest.mark.slow
@set_sizes(html_bytes=1)
def test_nobody_who_shows_a_large_view_reads_it(clicks: PipelineHandle) -> None:
    def refuse_read(operation: Operation) -> Fault | None:
        return Fault.FAIL if operation.kind == "get" and "/data/" in operation.path else None

    with disturb_stores(refuse_read):
        opened_clicks = hr.open(clicks.root)[CLICKS]
        current, panes = opened_clicks.current(where="n > 1"), opened_clicks.panes(where="n > 1")
        for view in (opened_clicks.current(), panes, opened_clicks.snapshots(), opened_clicks.state(at="main")):
            shown_html = view._repr_html_()
            assert "ask for its rows" in shown_html
            assert "<table>" not in shown_html
        assert bool(current), "without a count"
        with pytest.raises(StoreUnavailableError, match="on purpose"):
            current.to_arrow()


@pytest.mark.slow
def test_methods_print_nothing_and_a_listener_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clicks, lines = open_handle(land(tmp_path, "ann")), list[str]()
    capfd.readouterr()
    clicks.run(max_epochs=1, files_per_epoch=1)
    result = clicks.run(listener=lines.append)
    clicks.tag("here")
    clicks.rollback(to="beginning")
    clicks.backfill(branch="again", promote=True)
    reports = (clicks.explain("ann"), clicks.plan(), clicks.diff("here", "main"), hr.check(CLICKS))
    for value in (result, clicks, hr.open(clicks.root), clicks.panes(), *reports):
        assert "clicks" in repr(value)
        assert "(" not in repr(value).partition(" ")[0], "words, not fields"
    assert repr(clicks.log(limit=1)).split()[2] == "promote"
    assert "<td>rollback</td>" in clicks.log()._repr_html_()
    assert capfd.readouterr() == ("", "")
    assert any(line.startswith("epoch 1: ") for line in lines)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # it may come between open and with
def test_an_interrupt_ends_a_run_and_the_next_one_goes_on(tmp_path: Path) -> None:
    clicks = open_handle(land(tmp_path, "ann", "bob"))

    class Impatient(Silent):
        def committed(self, manifest: Manifest) -> None:
            if manifest.epoch == 1:
                _thread.interrupt_main()

    pairs_before = {*threading.enumerate()}
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    try:
        with pytest.raises(KeyboardInterrupt):
            clicks.run(files_per_epoch=1, listener=Impatient())
    finally:
        signal.signal(signal.SIGINT, handler)
    assert {thread for thread in threading.enumerate() if not thread.daemon} <= pairs_before
    assert clicks.show("main").epoch >= 1
    clicks.run()
    assert [row["n"] for row in clicks.current().head(99)] == [1] * 2 * HOURS
    assert clicks.fsck(deep=True).damage == ()


@pytest.mark.slow
def test_definitions_are_given_found_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingRootError):
        hr.open((tmp_path / "root").as_uri())
    new = hr.open((tmp_path / "root").as_uri(), create=True)
    assert new[CLICKS].run().epochs == ()
    assert CLICKS not in new, "there was no input"
    deployment = land(tmp_path / "root", "ann")
    assert len(hr.open(deployment.root)[CLICKS].run().epochs) == 1
    assert CLICKS in new
    deployment.land(CLICKS, {"user": "ann", "at": "2026-01-02T00:00:00Z", "amount": 1})
    by_name = hr.open(deployment.root)["clicks"]
    with pytest.raises(UnknownPipelineError, match="HEADRACE_PIPELINES"):
        by_name.run()
    assert len(by_name.run(CLICKS).epochs) == 1
    with pytest.raises(UnknownPipelineError, match=r"hr\.open\(root\)\['others'\]"):
        by_name.run(_pipeline_named("others"))
    file = tmp_path / "pipelines" / "clicks.py"
    file.parent.mkdir()
    file.write_text(
        "from datetime import datetime\nimport headrace as hr\n"
        'columns = {"user": str, "at": datetime, "amount": int}\n'
        'landed = hr.json("landing/clicks", columns).event_time("at", bound="0s")\n'
        'clicks = hr.Pipeline("clicks", landed, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"),\n'
        '    when=hr.on_update(), executor="local")\n'
    )
    assert by_name.plan(file).action == by_name.plan(str(file)).action == "keep"
    monkeypatch.setenv("HEADRACE_PIPELINES", str(file.parent))
    assert by_name.run().status == "succeeded"
    assert by_name.expire(dry_run=True).dry_run
    file.write_text(file.read_text().replace('"n": hr.count()', '"n": hr.count(), "m": hr.count()'))
    assert by_name.plan().starting_empty, "of the file as it is now"
    pipeline_list = hr.open(deployment.root).pipelines()
    assert [each.name for each in pipeline_list.pipelines if each.source] != []
    positions = [each.position for each in pipeline_list.pipelines]
    assert [each["position"] for each in asdict(pipeline_list)["pipelines"]] == [
        each and asdict(each) for each in positions
    ]


def _pipeline_named(name: str) -> hr.Pipeline:
    return hr.Pipeline(name, CLICKS_INPUT, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("run", {"max_epochs": 0}),
        ("run", {"files_per_epoch": "1"}),
        ("run", {"executor": "sparc"}),
        ("run", {"mode": "stream"}),
        ("run", {"branch": ""}),
        ("run", {"from_branch": 1}),
        ("run", {"clock": 7}),
        ("run", {"signals": "go"}),
        ("run", {"signals": [7]}),
        ("run", {"publish": "yes"}),
        ("run", {"strict": 1}),
        ("run", {"allow_new_aggregates": "yes"}),
        ("run", {"pipeline": 7}),
        ("run", {"listener": 7}),
        ("backfill", {"start": 7}),
        ("backfill", {"end": ""}),
        ("backfill", {"promote": "no"}),
        ("recover", {"snapshot": 7}),
        ("recover", {"snapshot": "main", "publish": "no"}),
        ("log", {"limit": 0}),
        ("plot", {"epochs": 0}),
        ("read", {"view": "curent"}),
        ("read", {"view": ["current"]}),
        ("expire", {"keep_last": 0}),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_done(
    clicks: PipelineHandle, method: str, arguments: dict[str, Any]
) -> None:
    entry = clicks.log(limit=1)
    with pytest.raises(FixConfigError, match="|".join([*arguments, "view", "keep"])):
        getattr(clicks, method)(**arguments)
    assert clicks.log(limit=1) == entry
