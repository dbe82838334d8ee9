"""Every figure that pages show is what the command line says of the same snapshot, over random pipelines."""

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from headrace.cli.app import EXIT_DONE
from headrace.cli.main import app
from headrace.errors import FixDataError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

if TYPE_CHECKING:
    from headrace_airflow.pages.answers import PipelinePage

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

_SEEDS: Final = range(int(os.environ.get("HEADRACE_EXAMPLES", "3")))
_HOURS: Final = 6
_PIPELINE: Final = """
from datetime import datetime
import headrace as hr
from headrace import col

SEEN = {{"id": str, "shop": str, "at": datetime, "n": int}}
seen = hr.json("landing/seen", SEEN).event_time("at", bound="{bound}")

def output(key):
    return dict(
        key=key,
        what={{"total": col("n").sum(), "number": hr.count()}},
        where=hr.{window},
        when={trigger},
        how=hr.{how}(allowed_lateness="{lateness}"),
    )

{pipeline}
"""
_ONE: Final = """pipeline = hr.Pipeline(
    "figures", seen, **output("shop"), executor="local", filter=col("n") > 0, {more}
)"""
_SEVERAL: Final = """pipeline = hr.Pipeline(
    "figures", seen, outputs={{"shops": hr.Output(**output("shop")), "numbers": hr.Output(**output("n"))}},
    executor="local", {more}
)"""
_CHAIN: Final = """
then=[hr.Aggregation(key="shop", what={"most": col("total").max()}, where=hr.FixedWindows("3h"), when=hr.on_update(),
      how=hr.retracting(allowed_lateness="6h"))],
"""


@dataclass(frozen=True)
class _Deployment:
    """A pipeline that has run, looked at by pages and by commands."""

    root: Path
    file: Path

    @property
    def page(self) -> "PipelinePage":
        from headrace_airflow.pages.answers import PipelinePage

        return PipelinePage(Catalog(open_store(self.root.as_uri()), "figures"))

    def land(self, number: int, draw: random.Random) -> None:
        """Records out of order, some of which are late, bad, filtered out or there already."""
        lines = [
            json.dumps(
                {
                    "id": f"{number}-{index // 2 if draw.random() < 0.1 else index}",
                    "shop": draw.choice("abc"),
                    "at": f"2026-11-20T{draw.randrange(_HOURS):02}:{draw.randrange(60):02}:00Z",
                    "n": draw.randrange(4) if draw.random() < 0.9 else "bad",
                }
            )
            for index in range(draw.randrange(5, 40))
        ]
        (self.root / "landing" / "seen" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")

    def run_json(self, command: str, *arguments: str, output: str = "") -> Any:
        """What a command prints as JSON."""
        name = f"{self.file}:figures.{output}" if output else str(self.file)
        command_line = [command, name, *arguments, "--root", self.root.as_uri(), "--format", "json"]
        result = CliRunner().invoke(app, command_line)
        assert result.exit_code == 0, (command_line, result.output)
        return json.loads(result.stdout)

    def rows(self, view: str, *arguments: str, output: str = "") -> int:
        """How many rows a view of main has."""
        return len(self.run_json("read", "--view", view, "--at", "main", *arguments, output=output))

    def run(self) -> None:
        """Run; the audit may fail."""
        result = CliRunner().invoke(app, ["run", str(self.file), "--root", self.root.as_uri()])
        assert result.exit_code in (EXIT_DONE, FixDataError.exit_code), result.output


def _draw_pipeline(draw: random.Random) -> str:
    more = ['deduplicate=hr.Deduplicate("id", "1d"),'] if draw.random() < 0.4 else []
    shape, how = draw.choice([_ONE, _SEVERAL]), draw.choice(["retracting", "accumulating", "discarding"])
    if shape == _ONE and draw.random() < 0.4:
        more.append('expectations=[hr.expect("column_values_to_be_between", column="number", max_value=3)],')
    if shape == _ONE and how == "retracting" and draw.random() < 0.5:
        more.append(_CHAIN)
    window = draw.choice(['FixedWindows("1h")', 'Sessions("20m")', 'SlidingWindows("2h", "1h")'])
    trigger = draw.choice(["hr.on_update()", "hr.AfterWatermark(late=hr.AfterCount(1))"])
    return _PIPELINE.format(
        bound=draw.choice(["5m", "1h", "6h"]),
        window=window,
        trigger=trigger,
        how=how,
        lateness=draw.choice(["0s", "1h", "6h"]),
        pipeline=shape.format(more="".join(more)),
    )


@pytest.fixture(scope="module", params=_SEEDS, ids="seed {}".format)
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Deployment:
    draw, folder = random.Random(request.param), tmp_path_factory.mktemp("figures")
    deployment = _Deployment(folder / "root", folder / "figures.py")
    deployment.file.write_text(_draw_pipeline(draw))
    (deployment.root / "landing" / "seen").mkdir(parents=True)
    for number in range(draw.randrange(2, 6)):
        deployment.land(number, draw)
        deployment.run()
    return deployment


def test_pages_and_commands_say_the_same(deployment: _Deployment) -> None:
    page, shown_snapshot = deployment.page, deployment.run_json("show", "main")
    graph, snapshot = page.graph("main", with_values=True), page.snapshot("main")
    assert graph is not None
    assert snapshot["counts"] == graph["counts"] == shown_snapshot["counts"]
    assert {name: table["rows"] for name, table in snapshot["tables"].items()} == {
        name: sum(file["rows"] for layer in layers for file in layer["files"])
        for name, layers in shown_snapshot["tables"].items()
    }
    for own in graph.get("outputs", [graph]):
        output = own.get("name", "")
        assert own["current"]["live"] == deployment.rows("current", output=output)
        for view in ("panes", "late"):
            assert own["logs"][view] == deployment.rows(view, output=output), view
        for number, stage in enumerate(own["stages"], start=1):
            assert stage["open_windows"] == deployment.rows("state", "--stage", str(number), output=output)
    shared_output = graph["outputs"][0]["name"] if "outputs" in graph else ""
    assert graph["logs"]["rejected"] == deployment.rows("rejected", output=shared_output)


def test_epochs_and_what_readers_see_are_those_of_the_log(deployment: _Deployment) -> None:
    page, line = deployment.page, []
    snapshot_ref: str | None = "main"
    while snapshot_ref is not None:
        line.append(deployment.run_json("show", snapshot_ref))
        snapshot_ref = line[-1]["parent"]
    epochs = page.epochs("main", 50)
    assert [(one["epoch"], one["snapshot"], one["counts"]) for one in reversed(epochs)] == [
        (one["epoch"], one["snapshot_id"], one["counts"]) for one in line
    ]
    assert [one["watermark"] for one in reversed(epochs)] == [one["progress"]["watermark"] for one in line]
    summary = page.summary(None)
    assert summary.totals == {name: sum(one["counts"].get(name, 0) for one in line) for name in summary.totals}
    published_snapshot = deployment.run_json("log", "--limit", "1")[0]["refs"].get("published")
    if not summary.outputs:
        assert summary.published == published_snapshot
        epoch = deployment.run_json("show", "published")["epoch"] if published_snapshot else -1
        assert summary.unpublished == line[0]["epoch"] - epoch
