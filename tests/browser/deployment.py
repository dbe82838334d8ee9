"""A deployment to look at: pipelines that publish, have failing audits, dead letters, all kinds of
steps; one under a root with a name; and a local Airflow with a user of each role.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import headrace as hr
from headrace.audit.store import AuditFailedError
from headrace.pipeline.loading.registry import in_file
from headrace_snapshots.store import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import CALM
from tests.airflow.subprocesses import write_pipeline, write_shop
from tests.airflow.test_end_to_end import land

ASKING_PIPELINE = "taps"
"""A pipeline that waits for signals and has not run."""
ROLES = {"admin": "admin", "olga": "op", "uma": "user", "vic": "viewer"}
_MOST = {"clicks": 100, "orders": 1, "visits": None}
_BAD = ('{"user": 1}', "oops")


_TRIPS = """
from datetime import datetime
import headrace as hr
from headrace import col

RIDE = {"id": str, "city": str, "at": datetime, "fare": int}
taxis = hr.json("landing/taxis", RIDE).event_time("at", bound="5m")
bikes = hr.json("landing/bikes", RIDE).event_time("at", bound="2m", idle="1h").named("bikes")
trips = hr.Pipeline(
    "trips",
    taxis,
    union=[bikes],
    filter=col("fare") > 0,
    deduplicate=hr.Deduplicate("id", "2h"),
    key="city",
    what={"rides": hr.count(), "fares": col("fare").sum()},
    where=hr.FixedWindows("10m"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1h"),
    then=[
        hr.Aggregation(
            key="city",
            what={"rides": col("rides").sum(), "fares": col("fares").sum()},
            where=hr.FixedWindows("30m"),
            when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
            how=hr.retracting(allowed_lateness="1h"),
        )
    ],
    executor="local",
)
"""
_FARES = """
import headrace as hr
from headrace import col

fares = hr.Pipeline(
    "fares",
    hr.published("trips", {"city": str, "fares": int}),
    key="city",
    what={"fares": col("fares").sum()},
    where=hr.CalendarWindows("day"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="7d"),
    executor="local",
)
"""
"""It reads the trips."""

_FINES = """
from datetime import datetime
import headrace as hr

source = hr.json("landing/fines", {"city": str, "at": datetime, "fine": int}).event_time("at", bound="1h")
fines = hr.Pipeline("fines", source, rows=["city", "fine"], executor="local")
"""
"""Rows as they are."""

_RIDES: Sequence[Sequence[tuple[str, str, str, int]]] = (
    [("taxis", "Oslo", "08:05", 20), ("bikes", "Rome", "08:07", 5), ("taxis", "Oslo", "08:05", 20)],
    [("taxis", "Oslo", "08:21", 14), ("bikes", "Oslo", "08:33", 0), ("bikes", "Oslo", "08:24", 3)],
    [("taxis", "Oslo", "08:44", 9), ("taxis", "Rome", "08:46", 30), ("bikes", "Oslo", "08:47", 4)],
    [("bikes", "Oslo", "08:28", 7)],  # late
    [("taxis", "Oslo", "09:12", 11), ("bikes", "Rome", "09:15", 6)],
)
"""Rides by epoch: where they land, in which city, when, for how much. One is a duplicate, one is filtered out."""


def look_at(folder: Path, settings: Mapping[str, str] = MappingProxyType({})) -> LocalAirflow:
    """An Airflow, not started yet, over pipelines that have run in ``folder``; ``settings`` are further variables."""
    pipelines, root = folder / "pipelines", (folder / "root").as_uri()
    pipelines.mkdir()
    store = open_store(root)
    for name, most in _MOST.items():
        file = write_pipeline(pipelines, name, options='executor="local"', most=most)
        (registered_pipeline,) = in_file(file)
        for number in range(3):
            bad = _BAD if name == "visits" else ()
            land(store, name, f"{number}.jsonl", range(number * 7, number * 7 + 10), *bad)
            try:
                hr.open(root, create=True)[registered_pipeline.pipeline].run()
            except AuditFailedError:
                assert name == "orders"
        if name == "clicks":
            hr.open(root)[registered_pipeline.pipeline].backfill(start="2026-11-20", end="2026-11-21", branch="again")
    _run_trips(pipelines, root)
    _run_shop(pipelines, root)
    named_root = _named_root(folder, sales_root(root))
    environment = {**CALM, "HEADRACE_PIPELINES": str(pipelines), "HEADRACE_ROOTS": str(named_root), **settings}
    return LocalAirflow(folder / "home", root, environment, users=ROLES, triggerer=True)


def fill_in(folder: Path) -> LocalAirflow:
    """The same, and what people ask for and have wrong: a pipeline that waits for signals, a file that blocks, and one
    that raises what is no Exception.
    """
    airflow, pipelines = look_at(folder, {"HEADRACE_IMPORT_LIMIT": "5s"}), folder / "pipelines"
    options = 'executor="local", retention=hr.Retention(schedule="@yearly")'
    file = write_pipeline(pipelines, ASKING_PIPELINE, options=options, most=None)
    waits = 'hr.AfterAny(hr.AfterSignal("go"), hr.AfterSignal("ask"), hr.AfterCount(1))'
    file.write_text(file.read_text().replace("early=hr.AfterCount(1)", f"early={waits}"))
    _run_fines(folder)
    (pipelines / "a_block.py").write_text("import time\n\ntime.sleep(300)\n")
    (pipelines / "b_stop.py").write_text("raise KeyboardInterrupt\n")
    return airflow


def sales_root(root: str) -> str:
    """The root called sales, beside that without a name."""
    return root.removesuffix("root") + "sales"


def _named_root(folder: Path, root: str) -> Path:
    """The file that declares a root called sales, whose pipeline has the name of one under the other root."""
    (folder / "of_sales").mkdir()
    (registered_pipeline,) = in_file(
        write_pipeline(folder / "of_sales", "clicks", options='executor="local"', most=None)
    )
    land(open_store(root), "clicks", "0.jsonl", range(5))
    hr.open(root, create=True)[registered_pipeline.pipeline].run()
    roots = folder / "roots.toml"
    roots.write_text(f'[[root]]\nname = "sales"\nuri = "{root}"\npipelines = ["of_sales"]\n')
    return roots


def _run_shop(pipelines: Path, root: str) -> None:
    """Run a pipeline with outputs twice, the second time without one of them, which is parked."""
    (registered_pipeline,) = in_file(write_shop(pipelines))
    for number in range(2):
        land(open_store(root), "shop", f"{number}.jsonl", range(number * 4, number * 4 + 4))
        hr.open(root)[registered_pipeline.pipeline].run(without=["visits"] if number else [])


def _run_trips(pipelines: Path, root: str) -> None:
    file = pipelines / "trips.py"
    file.write_text(_TRIPS)
    (registered_pipeline,) = in_file(file)
    for number, rides in enumerate(_RIDES):
        for place in ("taxis", "bikes"):
            lines = [
                json.dumps({"id": f"{city}{moment}", "city": city, "at": f"2026-11-20T{moment}:00Z", "fare": fare})
                for landed_place, city, moment, fare in rides
                if landed_place == place
            ]
            open_store(root).write(f"landing/{place}/{number}.jsonl", "\n".join([*lines, ""]).encode())
        hr.open(root)[registered_pipeline.pipeline].run()
    (pipelines / "fares.py").write_text(_FARES)
    (registered_pipeline,) = in_file(pipelines / "fares.py")
    hr.open(root)[registered_pipeline.pipeline].run()


def _run_fines(folder: Path) -> None:
    """Run a pipeline of rows, and a branch in which one of them is another."""
    root, file = (folder / "root").as_uri(), folder / "pipelines" / "fines.py"
    file.write_text(_FINES)
    (registered_pipeline,) = in_file(file)
    for branch, fine in (("main", 5), ("higher", 50)):
        record = {"city": "Oslo", "at": "2026-11-20T08:00:00Z", "fine": fine}
        open_store(root).write("landing/fines/0.jsonl", json.dumps(record).encode())
        fines = hr.open(root)[registered_pipeline.pipeline]
        fines.run() if branch == "main" else fines.backfill(branch=branch)
