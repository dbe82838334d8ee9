"""Records that some output of several has dropped land again: of that output beside it, or those of nobody for all."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import col
from headrace.cli.main import app
from headrace.read.snapshots.read_names import dropped_files
from headrace.read.views.columns import View
from headrace.runs.client.recording import make_change
from headrace.runs.options import Mode, RunOptions
from headrace.runs.plan import CutOver
from headrace.runs.relanding import LandingAgainError
from tests.process.clicks import START, land
from tests.process.executors import ExecutorUnderTest, on_both
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS, catalog_of, line
from tests.reading import read

NOBODYS = [{"user": "u1", "price": 3}, {"user": "u2", "price": 4}]
"""Clicks without a time: no output can take them."""

KEYLESS = [{"user": None, "price": price, "at": START.isoformat()} for price in (5, 6, 7)]
"""Clicks that only the output without a key can take."""


def add(root: Path, number: int, clicks: list[dict[str, object]]) -> None:
    """Land a file of ``clicks``."""
    file = root / "landing" / "clicks" / f"part-{number:05d}-more.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(click) + "\n" for click in clicks))


@pytest.fixture
def root(executor: ExecutorUnderTest, tmp_path: Path) -> Path:
    """Clicks of which some are dead letters and some come too late, in four epochs."""
    root = tmp_path / "root"
    add(root, 0, [*NOBODYS, *KEYLESS])
    land(root, 0, 2)
    land(root, 40, 41)  # the hours before are over
    executor.process(SHOP, root.as_uri(), RunOptions("first", publish=True))
    land(root, 41, 42)
    add(root, 42, [{"user": "u1", "price": 10 + n, "at": START.isoformat()} for n in range(3)])
    executor.process(SHOP, root.as_uri(), RunOptions("second", publish=True))
    return root


def landed_rows(folder: Path) -> list[Mapping[str, object]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_late_records_of_an_output_are_counted_beside_it(executor: ExecutorUnderTest, root: Path) -> None:
    shop = hr.open(root.as_uri())[SHOP]
    with pytest.raises(LandingAgainError, match=r"the outputs hourly, visits, daily: say of which one.*shop\.hourly"):
        shop.replay_late()
    late = shop.replay_late(output="visits")
    assert (late.target, late.records) == (f"{root.as_uri()}/late/visits/landing/clicks", 3)
    assert [click["price"] for click in landed_rows(root / "late" / "visits" / "landing" / "clicks")] == [10, 11, 12]
    path_beside = root / "late" / "visits"
    executor.process(SHOP, path_beside.as_uri(), RunOptions("late", mode=Mode.BATCH, without=("hourly", "daily")))
    (row,) = hr.open(path_beside.as_uri())["shop"]["visits"].current(at="main").to_arrow().to_pylist()
    assert (row["clicks"], row["spent"]) == (3, 33)
    assert hr.open(path_beside.as_uri())["shop"]["hourly"].current(at="main").count() == 0
    assert shop.replay_late(output="visits").files == 0, "each lands only once"
    with pytest.raises(LandingAgainError, match="they would count it twice"):
        shop.replay_late(output="visits", to="landing/clicks")


def test_of_an_output_that_reads_others_nothing_lands(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    output_below = replace(HOURLY, of="hourly", what={"spent": col("spent").sum()})
    shop = replace(SHOP, outputs={**SHOP.outputs, "below": output_below})
    land(tmp_path, 0, 1)
    executor.process(shop, tmp_path.as_uri(), RunOptions("run", publish=True))
    with pytest.raises(LandingAgainError, match="an output below that reads panes"):
        hr.open(tmp_path.as_uri())[shop].replay_late(output="below")


def test_dead_letters_of_nobody_land_and_those_of_one_output_beside(root: Path) -> None:
    shop = hr.open(root.as_uri())[SHOP]
    whole = shop.replay_rejected()
    assert whole.records == len(NOBODYS)
    assert landed_rows(root / "rejected" / "landing" / "clicks") == NOBODYS
    (why, number), (other, of_visits) = sorted(whole.left.items())
    assert "refused by output hourly alone" in why
    assert "headrace backfill shop.visits --promote" in other
    assert (number, of_visits) == (len(KEYLESS), len(KEYLESS))
    own = shop.replay_rejected(output="visits")
    assert (own.records, own.left) == (len(KEYLESS), {})
    assert landed_rows(root / "rejected" / "visits" / "landing" / "clicks") == KEYLESS
    with pytest.raises(LandingAgainError, match="they would count it twice"):
        shop.replay_rejected(output="visits", to="landing/clicks")


def test_dead_letters_under_a_former_name_are_those_of_the_output(executor: ExecutorUnderTest, root: Path) -> None:
    sessions = {"hourly": HOURLY, "sessions": replace(VISITS, formerly="visits"), "daily": DAILY}
    shop = replace(SHOP, outputs=sessions)
    land(root, 43, 44)
    assert hr.open(root.as_uri())[SHOP].replay_late(output="visits").records == 3
    executor.process(shop, root.as_uri(), RunOptions("renamed", publish=True))
    late = hr.open(root.as_uri())[shop].replay_late(output="sessions")
    assert (late.records, late.already_landed, late.beside) == (0, 1, f"{root.as_uri()}/late/visits"), "as ever"
    own = hr.open(root.as_uri())[shop].replay_rejected(output="sessions")
    assert (own.records, own.left, own.beside) == (len(KEYLESS), {}, f"{root.as_uri()}/rejected/visits")
    executor.backfill(shop, root.as_uri(), RunOptions("branch", branch="again", output="sessions"))
    make_change(catalog_of(root), CutOver("again", "sessions"), run_id="adopt")
    letters = read(shop, root.as_uri(), "rejected", "main", "sessions").to_pylist()
    assert len([row for row in letters if row["output"] in ("visits", "sessions")]) == len(KEYLESS)
    second_pipeline = replace(shop, outputs={**sessions, "visits": VISITS})
    executor.process(second_pipeline, root.as_uri(), RunOptions("another", publish=True))
    add(root, 45, KEYLESS[:2])
    executor.process(second_pipeline, root.as_uri(), RunOptions("more", publish=True))
    land(root, 46, 47)
    both = hr.open(root.as_uri())[second_pipeline].replay_rejected(output="sessions", to="elsewhere")
    assert both.records == len(KEYLESS) + 2, "and not those of the output that has the name now"
    with pytest.raises(LandingAgainError, match="outputs visits and sessions of shop were both called visits"):
        hr.open(root.as_uri())[second_pipeline].replay_rejected(output="visits")


def test_they_land_once_whatever_main_adopts(executor: ExecutorUnderTest, root: Path) -> None:
    shop = hr.open(root.as_uri())[SHOP]
    assert shop.replay_rejected(to="landing/clicks").records == len(NOBODYS)
    executor.process(SHOP, root.as_uri(), RunOptions("third", publish=True))
    copy = line(catalog_of(root))[-1]
    assert copy.counts["input_files"] == 1
    files_before = {*dropped_files(catalog_of(root), copy, View.REJECTED)}
    changed_pipeline = replace(SHOP, outputs={**SHOP.outputs, "visits": replace(VISITS, filter=col("price") > 4)})
    executor.backfill(changed_pipeline, root.as_uri(), RunOptions("branch", branch="again", output="visits"))
    make_change(catalog_of(root), CutOver("again", "visits"), run_id="adopt")
    head = line(catalog_of(root))[-1]
    assert files_before < {*dropped_files(catalog_of(root), head, View.REJECTED)}
    executor.process(changed_pipeline, root.as_uri(), RunOptions("publish", publish=True))
    second_landing = hr.open(root.as_uri())[changed_pipeline].replay_rejected(to="landing/clicks")
    assert (second_landing.files, second_landing.already_landed, second_landing.rejected_twice) == (0, 1, len(NOBODYS))
    assert executor.process(changed_pipeline, root.as_uri(), RunOptions("idle")).counts.get("input_files", 0) == 0


WITHOUT_KEYS = replace(VISITS, key={"user": hr.coalesce(col("user"), "nobody")})
"""It takes what no output with a key takes."""


@on_both
def test_what_no_output_took_is_not_taken_by_one_that_catches_up(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Else it would count once more when it lands again."""
    root, two = tmp_path.as_uri(), replace(SHOP, outputs={"hourly": HOURLY, "visits": VISITS})
    now = replace(two, outputs={"hourly": HOURLY, "visits": WITHOUT_KEYS})
    land(tmp_path, 0, 2)
    executor.process(two, root, RunOptions("before", publish=True))
    executor.backfill(now, root, RunOptions("branch", branch="again", output="visits"))
    add(tmp_path, 2, KEYLESS[:1])
    executor.process(two, root, RunOptions("old-code", publish=True))
    make_change(catalog_of(tmp_path), CutOver("again", "visits"), run_id="adopt")
    executor.process(now, root, RunOptions("on", publish=True))
    assert hr.open(root)[now].replay_rejected(to="landing/clicks").records == 1
    executor.process(now, root, RunOptions("landed-again", publish=True))
    counts = read(now, root, "current", "main", "visits").to_pylist()
    assert [row["clicks"] for row in counts if row["user"] == "nobody"] == []
    progress_of_visits = (
        catalog_of(tmp_path).manifest(catalog_of(tmp_path).head().refs["main"]).progress["outputs"]["visits"]
    )
    assert progress_of_visits["parked"]["code"] == "config.output_diverged"
    assert "records of epoch 2 would count now that no output took" in progress_of_visits["parked"]["message"]
    hr.open(root)[now].backfill(promote=True)
    (nobody,) = (row for row in read(now, root, "current", "main", "visits").to_pylist() if row["user"] == "nobody")
    assert nobody["clicks"] == 1


def test_what_an_output_took_while_it_meant_something_else_is_its_dead_letter(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root, two = tmp_path.as_uri(), replace(SHOP, outputs={"hourly": HOURLY, "visits": VISITS})
    land(tmp_path, 0, 2)
    executor.process(two, root, RunOptions("before"))
    add(tmp_path, 2, KEYLESS[:1])
    executor.process(replace(two, outputs={"hourly": HOURLY, "visits": WITHOUT_KEYS}), root, RunOptions("changed"))
    executor.process(two, root, RunOptions("taken-back"))
    letters = read(two, root, "rejected", "main", "visits").to_pylist()
    assert sorted(str(row["output"]) for row in letters) == ["hourly", "visits"]


def test_what_an_output_may_have_taken_that_came_later_does_not_land(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root = tmp_path.as_uri()
    add(tmp_path, 0, [*NOBODYS])
    executor.process(replace(SHOP, outputs={"hourly": HOURLY, "daily": DAILY}), root, RunOptions("two", publish=True))
    add(tmp_path, 1, [*NOBODYS])
    executor.process(SHOP, root, RunOptions("three", publish=True))
    add(tmp_path, 2, [*NOBODYS])
    executor.process(SHOP, root, RunOptions("on", publish=True))
    coming = replace(SHOP, outputs={**SHOP.outputs, "more": VISITS})
    result = hr.open(root)[coming].replay_rejected(to="landing/clicks")
    assert (result.records, [*result.left.values()]) == (0, [6]), "the next run may be computing it already"
    result = hr.open(root)[SHOP].replay_rejected(to="landing/clicks")
    ((why, number),) = result.left.items()
    assert "rejected before there was output visits" in why
    assert (number, result.records) == (2, 4)


def test_a_new_output_waits_if_it_takes_what_has_landed_again(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    land(tmp_path, 0, 1)
    add(tmp_path, 1, KEYLESS)
    pipeline_before = replace(SHOP, outputs={"visits": VISITS})
    executor.process(pipeline_before, root, RunOptions("before", publish=True))
    assert hr.open(root)[pipeline_before].replay_rejected(to="landing/clicks").records == len(KEYLESS)
    executor.process(replace(SHOP, outputs={"visits": VISITS, "all": WITHOUT_KEYS}), root, RunOptions("more"))
    outputs = catalog_of(tmp_path).manifest(catalog_of(tmp_path).head().refs["main"]).progress["outputs"]
    assert "Dead letters may land again" in outputs["all"].get("parked", {}).get("message", ""), "else twice"


def test_commands_name_the_output(executor: ExecutorUnderTest, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "pipelines").mkdir()
    (root / "pipelines/shop.py").write_text("from tests.process.outputs import SHOP\n")
    monkeypatch.setenv("HEADRACE_PIPELINES", str(root / "pipelines"))
    for command, folder in (("replay-late", "late"), ("replay-rejected", "rejected")):
        result = CliRunner().invoke(app, [command, "shop.visits", "--root", root.as_uri()])
        assert result.exit_code == 0, result.stderr
        output_text = result.stdout + result.stderr
        run = f"headrace run shop --root {root.as_uri()}/{folder}/visits --mode batch --without daily --without hourly"
        assert run in " ".join(output_text.split())
