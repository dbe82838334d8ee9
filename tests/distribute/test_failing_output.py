"""An output whose tasks fail is parked: it stays as it was, and the others are as if it were not there."""

from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace import Deduplicate, Output, Pipeline, col
from headrace.distribute.epoch import Attempt, ComputedEpoch, RecomputedEpoch
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.errors import HeadraceError
from headrace.model.time import Instant
from headrace.pipeline.endpoints import OWN
from headrace.sources.landing import Landing
from headrace_snapshots.format.manifest import IDS
from headrace_snapshots.names import data_prefix
from headrace_snapshots.store import open_store
from tests.distribute.blobs import OverBlobs
from tests.process.clicks import land
from tests.process.fragile import Fragile, fragile
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS

EPOCHS = 3
MANY = 2**62
NOW = 1_770_000_000_000_000
NO_FILE = "/nowhere/mended"

FAILING = {
    "as records are read": fragile(Fragile(NO_FILE, "add", least=23)),
    "as windows fire": fragile(Fragile(NO_FILE, "extract", least=75)),
    "as the first records are read": fragile(Fragile(NO_FILE, "add", least=19)),
    "an aggregate overflows": replace(VISITS, what={"most": (col("price") * MANY).max()}),
    "a filter overflows": replace(VISITS, filter=col("price") * MANY > 0),
    "in its second aggregation": replace(
        DAILY, then=[replace(DAILY.then[0], what={"sum": col("spent").combine(Fragile(NO_FILE, "add", least=1))})]
    ),
}


def shop(output: Output, *, telling: bool) -> Pipeline:
    """A shop with the failing ``output`` in the middle."""
    deduplicate = Deduplicate("user", "1d") if telling else None
    return replace(SHOP, outputs={"hourly": HOURLY, "bad": output, "daily": DAILY}, deduplicate=deduplicate)


def engine_of(pipeline: Pipeline, root: Path, tasks: int = 1) -> OverBlobs:
    store = open_store(root.as_uri())
    work = TaskEnvironment.from_pipeline(pipeline, store, Landing(pipeline, store))
    return OverBlobs(
        work, lambda epoch: Attempt(f"snapshot-{epoch}", data_prefix(pipeline.name, epoch, f"{epoch:016x}")), tasks
    )


def contents(computed_epoch: ComputedEpoch, output: str) -> dict[str, object]:
    """What an epoch stored of an ``output``, by checksums."""
    logs = {name: [f.sha256 for f in files] for name, files in computed_epoch.written.logs.items()}
    tables = {
        name: [[file.sha256 for file in layer.files] for layer in layers]
        for name, layers in computed_epoch.written.tables.items()
    }
    return {name: data for name, data in {**logs, **tables}.items() if name.startswith(f"{output}/") or name == IDS}


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(
    ("how", "telling"),
    [*((how, False) for how in FAILING), ("as the first records are read", True), ("a filter overflows", True)],
)
def test_an_output_that_fails_is_as_it_was_and_others_are_as_without_it(
    how: str, telling: bool, tasks: int, tmp_path: Path
) -> None:
    land(tmp_path, 0, EPOCHS)
    pipeline = shop(FAILING[how], telling=telling)
    without_pipeline = replace(pipeline, outputs={name: pipeline.outputs[name] for name in ("hourly", "daily")})
    failing, sound = (engine_of(shop, tmp_path, tasks) for shop in (pipeline, without_pipeline))
    parked_at: int | None = None
    for number, file in enumerate(failing.landing.new_files({})[OWN]):
        layers_by_name_before = {name: layers for name, layers in failing.tables.items() if name.startswith("bad/")}
        computed_epoch = failing.compute({OWN: [file]}, Instant(NOW + number), isolates=True)
        other = sound.compute({OWN: [file]}, Instant(NOW + number), isolates=True)
        for name in ("hourly", "daily"):
            if tasks == 1:  # the state of all outputs decides how tasks are shared out, which cut files
                assert contents(computed_epoch, name) == contents(other, name)
            counts = [
                {n: count for n, count in c.counts.items() if n.startswith(name)} for c in (computed_epoch, other)
            ]
            assert counts[0] == counts[1]
        assert computed_epoch.acknowledged_levels == {*range(failing.levels)}
        assert computed_epoch.progress.watermark == other.progress.watermark
        if computed_epoch.parked:
            parked_at = number if parked_at is None else parked_at
            assert computed_epoch.parked == ("bad",)
            assert {
                name: layers for name, layers in failing.tables.items() if name.startswith("bad/")
            } == layers_by_name_before
            assert computed_epoch.counts["bad/records"] == 0
            parked_bad = computed_epoch.progress.parked["bad"]
            assert parked_bad.epoch == parked_at - 1
            assert parked_bad.snapshot == (None if parked_at == 0 else f"snapshot-{parked_at - 1}")
            assert parked_bad.code in ("config.pipeline", "data.integer_overflow")
    assert parked_at is not None
    assert failing.progress.due_time == sound.progress.due_time
    with pytest.raises(HeadraceError, match=r"too much|overflow|64 bits"):
        engine_again = engine_of(pipeline, tmp_path)
        for number, file in enumerate(engine_again.landing.new_files({})[OWN]):
            engine_again.compute({OWN: [file]}, Instant(NOW + number))


def test_the_last_output_that_fails_ends_the_epoch(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    pipeline = replace(
        SHOP, outputs={"one": fragile(Fragile(NO_FILE, least=1)), "other": FAILING["a filter overflows"]}
    )
    with pytest.raises(HeadraceError):
        engine = engine_of(pipeline, tmp_path)
        engine.compute({OWN: engine.landing.new_files({})[OWN]}, Instant(NOW), isolates=True)


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("names", [("fires", "reads"), ("reads", "fires")])
def test_where_all_outputs_fail_the_first_error_ends_the_epoch(
    names: tuple[str, ...], tasks: int, tmp_path: Path
) -> None:
    land(tmp_path, 0, 1)
    outputs = {
        "fires": fragile(Fragile(NO_FILE, "extract", least=1)),
        "reads": fragile(Fragile(NO_FILE, "add", least=1)),
    }
    engine = engine_of(replace(SHOP, outputs={name: outputs[name] for name in names}), tmp_path, tasks)
    with pytest.raises(HeadraceError, match="too much to add"):
        engine.compute({OWN: engine.landing.new_files({})[OWN]}, Instant(NOW), isolates=True)


@pytest.mark.parametrize("telling", [False, True], ids=["all", "deduplicated"])
def test_a_parked_output_is_computed_again_alone(telling: bool, tmp_path: Path) -> None:
    land(tmp_path, 0, EPOCHS)
    mended_path = tmp_path / "mended"
    pipeline = shop(fragile(Fragile(str(mended_path), "add", least=1)), telling=telling)
    sound, failing, engine_again = (engine_of(pipeline, tmp_path) for _ in range(3))
    files = failing.landing.new_files({})[OWN]
    ids = []
    for number, file in enumerate(files):
        ids.append(failing.ids)
        assert failing.compute({OWN: [file]}, Instant(NOW + number), isolates=True).parked == ("bad",)
    ids.append(failing.ids)
    mended_path.touch()
    for number, file in enumerate(files):
        epoch_once = sound.compute({OWN: [file]}, Instant(NOW + number))
        past = RecomputedEpoch(frozenset({"bad"}), ids[number], ids[number + 1])
        only_epoch = engine_again.compute({OWN: [file]}, Instant(NOW + number), again=past)
        assert contents(only_epoch, "bad") | {IDS: None} == contents(epoch_once, "bad") | {IDS: None}
        assert {log for log, files in only_epoch.written.logs.items() if files} <= {"bad/panes", "bad/late", "rejected"}
        assert only_epoch.progress.watermark == epoch_once.progress.watermark
        assert {n: c for n, c in only_epoch.counts.items() if n.startswith("bad/")} == {
            n: c for n, c in epoch_once.counts.items() if n.startswith("bad/")
        }


DOWNSTREAM_OUTPUT = Output(
    of="bad", what={"clicks": col("clicks").sum()}, where=HOURLY.where, when=hr.on_update(), how=HOURLY.how
)
BOTH = replace(DOWNSTREAM_OUTPUT, of=("bad", "hourly"))


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("how", ["as windows fire", "a filter overflows"])
def test_what_reads_an_output_that_fails_is_parked_with_it(how: str, tasks: int, tmp_path: Path) -> None:
    land(tmp_path, 0, EPOCHS)
    outputs = {"both": BOTH, "bad": FAILING[how], "hourly": HOURLY, "per_hour": replace(DOWNSTREAM_OUTPUT, of="hourly")}
    pipeline = replace(SHOP, outputs=outputs)
    sound_pipeline = replace(SHOP, outputs={name: outputs[name] for name in ("hourly", "per_hour")})
    failing, sound = (engine_of(shop, tmp_path, tasks) for shop in (pipeline, sound_pipeline))
    parked_by_epoch: list[tuple[str, ...]] = []
    for number, file in enumerate(failing.landing.new_files({})[OWN]):
        computed_epoch = failing.compute({OWN: [file]}, Instant(NOW + number), isolates=True)
        other = sound.compute({OWN: [file]}, Instant(NOW + number))
        parked_by_epoch.append(computed_epoch.parked)
        assert computed_epoch.acknowledged_levels == {*range(failing.levels)}
        for name in sound_pipeline.outputs:
            counts = [
                {n: count for n, count in c.counts.items() if n.startswith(name)} for c in (computed_epoch, other)
            ]
            assert counts[0] == counts[1]
    assert {*parked_by_epoch[-1]} == {"bad", "both"}
    reasons = computed_epoch.progress.parked
    assert reasons["both"].message == f"output bad, which it reads, has failed: {reasons['bad'].message}"
    assert reasons["both"].epoch == reasons["bad"].epoch


def test_an_output_that_reads_others_is_computed_again_alone(tmp_path: Path) -> None:
    land(tmp_path, 0, EPOCHS)
    mended_path = tmp_path / "mended"
    fails = replace(DOWNSTREAM_OUTPUT, of="hourly", what={"clicks": col("clicks").combine(Fragile(str(mended_path)))})
    pipeline = replace(SHOP, outputs={"hourly": HOURLY, "bad": fails, "below": DOWNSTREAM_OUTPUT})
    sound, failing, engine_again = (engine_of(pipeline, tmp_path) for _ in range(3))
    files = failing.landing.new_files({})[OWN]
    for number, file in enumerate(files):
        assert {*failing.compute({OWN: [file]}, Instant(NOW + number), isolates=True).parked} == {"bad", "below"}
    mended_path.touch()
    for number, file in enumerate(files):
        epoch_once = sound.compute({OWN: [file]}, Instant(NOW + number))
        only_epoch = engine_again.compute(
            {OWN: [file]}, Instant(NOW + number), again=RecomputedEpoch(frozenset({"bad", "below"}))
        )
        for name in ("bad", "below"):
            assert contents(only_epoch, name) == contents(epoch_once, name)
        assert not any(files for log, files in only_epoch.written.logs.items() if log.startswith("hourly/"))
        assert only_epoch.parked == ("hourly",)
