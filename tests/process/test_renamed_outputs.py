"""Outputs that get other names while main moves: what readers see, what sinks got and who stands still go with them."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace import col
from headrace.cli.main import app
from headrace.read.definition_plan import FormerNameError
from headrace.read.snapshots.progress import StoredProgress
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.protocol.moves import BeginDelivery, EndDelivery
from tests.process.fragile import Fragile

pytestmark = pytest.mark.slow  # whole runs

EARLY: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting("2d")}
SALES = {"sales": col("price").sum()}


class Shop:
    """A root where a file lands before each run, of whatever outputs there are then."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, 0
        (folder / "landing/o").mkdir(parents=True)

    def pipeline(self, outputs: dict[str, hr.Output] | None = None, **more: Any) -> hr.Pipeline:
        source = hr.json("landing/o", {"shop": str, "price": int, "at": datetime}, max_files=1)
        parts = more if outputs is None else {"outputs": outputs, **more}
        return hr.Pipeline("shop", source.event_time("at", bound="10m"), executor="local", **parts)

    def run(self, pipeline: hr.Pipeline, price: int | None = None) -> str:
        """Lands a file and runs; the head of main."""
        self.land(price)
        self.handle = hr.open(self.folder.as_uri(), create=True)[pipeline]
        self.handle.run()
        return self.refs["main"]

    def land(self, price: int | None = None) -> None:
        self.files += 1
        record = {"shop": "oslo", "price": price or self.files, "at": f"2026-05-01T{self.files:02}:00:00Z"}
        (self.folder / f"landing/o/{self.files:04}.json").write_text(json.dumps(record) + "\n")

    @property
    def refs(self) -> dict[str, str]:
        return dict(self.handle.catalog.head().refs)

    def seen_by_output(self) -> dict[str, str]:
        """What readers see of each output, and sinks have got."""
        return {
            ref: snapshot for ref, snapshot in self.refs.items() if ref not in {"main"} and not ref.startswith("tags/")
        }

    def parked_outputs(self) -> set[str]:
        return {*StoredProgress.from_manifest(self.handle.show("main")).parked}

    def rows(self, output: str) -> list[dict[str, Any]]:
        rows = self.handle[output].current(at="main", columns=["window_start", "sales"]).to_arrow().to_pylist()
        return sorted(rows, key=lambda row: row["window_start"])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def hours(**more: Any) -> hr.Output:
    return hr.Output(key="shop", what=SALES, where=hr.FixedWindows("1h"), **EARLY, **more)


def days(upstream: str, **more: Any) -> hr.Output:
    what = more.pop("what", {"sales": col("sales").sum()})
    return hr.Output(of=upstream, key="shop", what=what, where=hr.CalendarWindows("day"), **EARLY, **more)


def test_readers_and_sinks_go_back_to_the_names_of_before(shop: Shop) -> None:
    """Over two renamings; "b" is another output's name afterwards."""
    first = shop.run(shop.pipeline({"a": hours(), "b": hours()}))
    catalog = shop.handle.catalog
    catalog.record_delivery(BeginDelivery("b", "mail", first))
    catalog.record_delivery(EndDelivery("b", "mail", first))
    shop.run(shop.pipeline({"a": hours(), "c": hours(formerly="b")}))
    last = shop.run(shop.pipeline({"a": hours(), "d": hours(formerly="c"), "b": days("d")}))
    of_sink = {"delivering/d/mail": first, "delivered/d/mail": first}
    assert shop.seen_by_output() == {**dict.fromkeys(("published/a", "published/d", "published/b"), last), **of_sink}
    foreseen = shop.handle.rollback(to=first, dry_run=True).moves
    assert shop.handle.rollback(to=first).moves == foreseen
    assert shop.seen_by_output() == {
        **dict.fromkeys(("published/a", "published/b"), first),
        "delivering/b/mail": first,
        "delivered/b/mail": first,
    }
    check_catalog(catalog.store, "shop")
    assert shop.run(shop.pipeline({"a": hours(), "c": hours(formerly="b")})) != last
    assert {*shop.seen_by_output()} == {"published/a", "published/c", "delivering/c/mail", "delivered/c/mail"}


@pytest.mark.parametrize("way", ["rollback", "recover", "step back"])
def test_the_only_output_loses_the_name_that_it_got(shop: Shop, way: str) -> None:
    first = shop.run(shop.pipeline(key="shop", what=SALES, where=hr.FixedWindows("1h"), **EARLY))
    named_pipeline = shop.pipeline({"v": hours(formerly="")})
    last = shop.run(named_pipeline)
    assert shop.seen_by_output() == {"published/v": last}
    catalog = shop.handle.catalog
    if way == "rollback":
        shop.handle.rollback(to=first)
        assert shop.seen_by_output() == {"published": first}
        assert [row["sales"] for row in hr.open(shop.handle.root)["shop"].current().to_arrow().to_pylist()] == [1]
    elif way == "step back":
        catalog.step_back(catalog.claim("main", "run"), first, "broken")
        assert shop.seen_by_output() == {"published": first}
    else:
        shop.handle.recover(first)
        assert shop.seen_by_output() == {"published/v": shop.refs["main"]}
        assert [row["sales"] for row in shop.rows("v")] == [1, 2]
    check_catalog(catalog.store, "shop")


@pytest.mark.parametrize("is_mended", ["with the name", "before the name"])
def test_what_is_parked_catches_up_though_what_it_reads_has_another_name(shop: Shop, is_mended: str) -> None:
    """It stands at a snapshot where that has its old name; two renamings lie between."""
    works = shop.folder / "works"
    works.touch()

    def shop_pipeline(name: str, **more: Any) -> hr.Pipeline:
        fragile = col("sales").combine(Fragile(str(works), most=100))
        return shop.pipeline({name: hours(**more), "daily": days(name, what={"sales": fragile})})

    shop.run(shop_pipeline("hourly"))
    works.unlink()
    shop.run(shop_pipeline("hourly"))
    assert shop.parked_outputs() == {"daily"}
    if is_mended == "with the name":
        works.touch()
    shop.run(shop_pipeline("hours", formerly="hourly"))
    assert shop.parked_outputs() == ({"daily"} if is_mended == "before the name" else set())
    shop.run(shop_pipeline("by_hour", formerly="hours"))
    works.touch()
    shop.run(shop_pipeline("by_hour", formerly="hours"))
    assert shop.parked_outputs() == set()
    assert [row["sales"] for row in shop.rows("by_hour")] == [1, 2, 3, 4, 5]
    assert [row["sales"] for row in shop.rows("daily")] == [15]
    assert shop.seen_by_output() == dict.fromkeys(("published/by_hour", "published/daily"), shop.refs["main"])
    check_catalog(shop.handle.catalog.store, "shop")


def test_a_new_output_with_the_old_name_of_another_stands_for_itself(shop: Shop) -> None:
    """What is parked reads an output whose name is another one's now."""
    works = shop.folder / "works"
    works.touch()

    def fragile(upstream: str) -> hr.Output:
        return days(upstream, what={"sales": col("sales").combine(Fragile(str(works), most=100))})

    shop.run(shop.pipeline({"hourly": hours(), "daily": fragile("hourly")}))
    works.unlink()
    shop.run(shop.pipeline({"hourly": hours(), "daily": fragile("hourly")}))
    assert shop.parked_outputs() == {"daily"}
    doubled_output = hr.Output(
        key="shop", what={"sales": (col("price") * 2).sum()}, where=hr.FixedWindows("1h"), **EARLY
    )
    outputs = {"hours": hours(formerly="hourly"), "daily": fragile("hours")}
    shop.run(shop.pipeline(outputs))
    shop.run(shop.pipeline({**outputs, "hourly": doubled_output}))
    works.touch()
    shop.run(shop.pipeline({**outputs, "hourly": doubled_output}))
    assert shop.parked_outputs() == set()
    assert [row["sales"] for row in shop.rows("hours")] == [1, 2, 3, 4, 5]
    assert [row["sales"] for row in shop.rows("hourly")] == [2, 4, 6, 8, 10]
    assert [row["sales"] for row in shop.rows("daily")] == [15]


def handle_of(shop: Shop, outputs: dict[str, hr.Output]) -> Any:
    return hr.open(shop.folder.as_uri())[shop.pipeline(outputs)]


def headrace(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--format", "json"])
    assert result.exit_code == 0, result.output
    return result.stdout


def changed_counts(rehearsal: Any) -> dict[str, tuple[int, int]]:
    """How many rows of each output readers would see come new, and change or go."""
    rows = {name: diff.output.rows for name, diff in rehearsal.diffs.items()}
    return {name: (own.added, own.changed + own.removed) for name, own in rows.items()}


@pytest.mark.parametrize("way", ["forked", "from nothing"])
def test_a_dry_run_compares_a_renamed_output_with_what_its_readers_see(shop: Shop, way: str) -> None:
    """The forked branch has recorded two renamings; what it calls "a" is what main calls "b"."""
    first = shop.run(shop.pipeline({"a": hours(), "b": days("a")}))
    catalog, root = shop.handle.catalog, shop.folder.as_uri()
    sinks = {"a": "mail", "b": "post"} if way == "forked" else {}  # a branch from nothing lacks what these have
    for output, sink in sinks.items():
        catalog.record_delivery(BeginDelivery(output, sink, first))
        catalog.record_delivery(EndDelivery(output, sink, first))
    renamed_outputs, second_outputs = (
        {"d": hours(formerly="a"), "b": days("d")},
        {"c": hours(formerly="d"), "b": days("c")},
    )
    if way == "forked":
        shop.handle.fork("main", "trial")
        for outputs in (renamed_outputs, second_outputs, {"c": hours(), "a": days("c", formerly="b")}):
            shop.land()
            handle_of(shop, outputs).run(branch="trial")
        former_names, expected = {"c": "a", "a": "b"}, {"c": (3, 0), "a": (0, 1)}
    else:
        handle_of(shop, renamed_outputs).backfill(branch="trial")
        former_names, expected = {"d": "a", "b": "b"}, {"d": (0, 0), "b": (0, 0)}
    rehearsal = shop.handle.promote("trial", dry_run=True)
    assert (changed_counts(rehearsal), rehearsal.gone) == (expected, ())
    shown_output = json.loads(headrace("promote", "shop", "trial", "--dry-run", "--root", root))["outputs"]
    assert {name: own["output"]["rows"] for name, own in shown_output.items()} == {
        name: diff.output.rows.to_json() for name, diff in rehearsal.diffs.items()
    }
    (output,) = {*former_names} - {*former_names.values()}
    own = rehearsal.diffs[output].output.rows
    for ref_before, ref_after in (("published", "trial"), ("main", "trial"), ("trial", "main")):
        rows = json.loads(headrace("diff", f"shop.{output}", ref_before, ref_after, "--root", root))["output"]["rows"]
        new = rows["added" if ref_after == "trial" else "removed"]
        assert (new, rows["changed"], rows["before"] + rows["after"]) == (
            own.added,
            own.changed,
            own.before + own.after,
        )
    shop.handle.promote("trial")
    promoted_snapshot = shop.refs["main"]
    assert {
        ref: snapshot for ref, snapshot in shop.seen_by_output().items() if snapshot == promoted_snapshot
    } == dict.fromkeys((f"published/{output}" for output in former_names), promoted_snapshot)
    assert {ref for ref, snapshot in shop.seen_by_output().items() if snapshot == first} == {
        f"{kind}/{output}/{sinks[former_name]}"
        for output, former_name in former_names.items()
        if former_name in sinks
        for kind in ("delivering", "delivered")
    }
    check_catalog(shop.handle.catalog.store, "shop")


def test_outputs_that_a_branch_has_not_are_said_to_be_gone(shop: Shop) -> None:
    shop.run(shop.pipeline({"a": hours(), "z": days("a")}))
    handle_of(shop, {"c": hours(formerly="a"), "new": days("c")}).backfill(branch="trial")
    rehearsal = shop.handle.promote("trial", dry_run=True)
    assert (changed_counts(rehearsal), rehearsal.gone) == ({"c": (0, 0), "new": (1, 0)}, ("z",))
    result = CliRunner().invoke(app, ["promote", "shop", "trial", "--dry-run", "--root", shop.folder.as_uri()])
    assert "output z is gone: its readers would see nothing any more" in result.stderr
    assert json.loads(headrace("promote", "shop", "trial", "--dry-run", "--root", shop.folder.as_uri()))["gone"] == [
        "z"
    ]
    assert shop.handle.promote("trial").published == shop.refs["main"]
    assert {*shop.seen_by_output()} == {"published/c", "published/new"}


def test_a_former_name_that_nobody_knows_is_refused_where_an_output_goes(shop: Shop) -> None:
    """Main has "a"; it was called "b" nowhere but in a definition that never ran there."""
    shop.run(shop.pipeline({"a": hours(), "z": days("a")}))
    skipped_names = {"c": hours(formerly="b"), "z": days("c")}
    why = "output c of shop was called 'b' formerly, .* It has a, which .*Say formerly='a' for c"
    for refused_call in (
        handle_of(shop, skipped_names).run,
        handle_of(shop, skipped_names).plans,
        handle_of(shop, skipped_names).backfill,
    ):
        with pytest.raises(FormerNameError, match=why):
            refused_call()
    assert {*shop.refs} == {"main", "published/a", "published/z"}
    last = shop.run(shop.pipeline({"c": hours(formerly="a"), "z": days("c")}))
    assert shop.seen_by_output() == dict.fromkeys(("published/c", "published/z"), last)
    shop.run(shop.pipeline({"d": hours(formerly="a"), "z": days("d")}))  # "c" is what was "a", as main has recorded
    assert [row["sales"] for row in shop.rows("d")] == [1, 2, 3]
