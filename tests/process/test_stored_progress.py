"""What a manifest says of progress is read in one place, which says what is wrong with it and where."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import RestoreError
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model.event_time import Split
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.pipeline.endpoints import OWN
from headrace.read.snapshots.progress import (
    ListingPosition,
    StoredProgress,
    epoch_to_json,
    epoch_without_reading,
    progress_of,
)
from headrace.runs.restore import restore_head
from headrace.sources.progress import (
    ChainClocks,
    HeldBack,
    InputHold,
    InputProgress,
    Lacking,
    PipelineProgress,
    RecordsAhead,
    Rejects,
    WatermarkHold,
)
from headrace.sources.source_clock import NOT_SAID
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.files import FileLog, FileRecord
from headrace_snapshots.format.manifest import OF_EPOCH, Manifest
from headrace_snapshots.store.local import MemoryStore
from tests.manifests import new_manifest
from tests.stored_progress import progress_to_json

FILE = SourceSplit("landing/b.json", 7, "etag", "digest")
MOMENT = Instant(1_772_000_000_000_000)
PROGRESS = PipelineProgress(
    {
        OWN: InputProgress(
            SourcePosition("landing/a.json", (FILE,), 2, 10),
            {"": Split(MOMENT, MOMENT, MOMENT, {3: 1})},
            MOMENT,
            {50.0: MOMENT},
        )
    },
    watermark=MOMENT,
    processing_time=MOMENT,
    chains={"": ChainClocks((MOMENT, MAX_INSTANT), due_event=MOMENT)},
    min_event_time=MOMENT,
    held_back_by=HeldBack(OWN, None, MOMENT),
    ahead=(RecordsAhead(OWN, 1, "landing/b.json", None, MOMENT),),
    newest=MOMENT,
    newest_read=MOMENT,
    behind={0: 2},
    newest_by_input={OWN: MOMENT},
    behind_by_file={0: 1, 60: 1},
    held_to=WatermarkHold(MOMENT, {"": (MOMENT, MAX_INSTANT)}, {OWN: InputHold(MOMENT, {50.0: MOMENT})}),
)
SIGNALS = (Signal("go", ("ann", 1), Window(MOMENT, GLOBAL_WINDOW_END)),)
PROGRESS_FIELDS = progress_to_json(PROGRESS, signals=SIGNALS, signals_of="r", executor="local")


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(MemoryStore(), "p")


def commit_epoch(catalog: Catalog, progress: dict[str, Any], parent: Manifest | None = None) -> Manifest:
    """An epoch that read FILE, with ``progress`` in its manifest."""
    claim = catalog.claim("main", "test")
    read = FileRecord(0, (stored.InputFile(FILE.path, FILE.size, FILE.etag, OWN, FILE.digest),))
    manifest = new_manifest(
        snapshot_id=catalog.new_snapshot_id(),
        pipeline="p",
        fingerprint="f",
        branch="main",
        epoch=0 if parent is None else 1,
        parent=None if parent is None else parent.snapshot_id,
        generation=claim.generation,
        created_at="2026-01-01T00:00:00Z",
        progress=progress,
        logs={"inputs": catalog.append_record(FileLog.empty(), read) if parent is None else parent.logs["inputs"]},
    )
    catalog.commit(claim, manifest)
    return catalog.manifest(manifest.snapshot_id)


def test_all_that_is_written_is_read(catalog: Catalog) -> None:
    manifest = commit_epoch(catalog, PROGRESS_FIELDS)
    progress = StoredProgress.from_manifest(manifest)
    clocks = {name: getattr(PROGRESS, name) for name in vars(PROGRESS) if name not in ("inputs", "epoch_bytes")}
    assert vars(progress) == {
        **clocks,
        "marks": {OWN: ListingPosition("landing/a.json", 1)},
        "signals": SIGNALS,
        "signals_of": "r",
    }
    assert progress_of(catalog, manifest) == PROGRESS
    assert progress_of(catalog, manifest.replace(counts={"input_bytes": 7})).epoch_bytes == 7


def fields_without(name: str) -> dict[str, Any]:
    return {field: value for field, value in PROGRESS_FIELDS.items() if field != name}


OPTIONAL = ("executor", "newest_event_time_read", "held_to", "newest_event_times", "behind_by_file")
"""Fields that manifests of before do not have."""


def with_input_field(name: str, value: object) -> dict[str, Any]:
    """PROGRESS_FIELDS with another value in what it says of its input."""
    return {**PROGRESS_FIELDS, "inputs": {OWN: {**PROGRESS_FIELDS["inputs"][OWN], name: value}}}


def test_manifests_of_before_are_held_to_nothing_and_do_not_say_what_was_read(catalog: Catalog) -> None:
    progress_before = {name: value for name, value in PROGRESS_FIELDS.items() if name not in OPTIONAL}
    progress = progress_of(catalog, commit_epoch(catalog, progress_before))
    unknown = replace(PROGRESS, held_to=None, newest_read=NOT_SAID, newest_by_input=None, behind_by_file=None)
    assert progress == unknown
    assert progress.newest_of([OWN, "other"]) == {OWN: MOMENT, "other": MOMENT}, (
        "as far as it is known: of all inputs together"
    )
    assert PROGRESS.newest_of([OWN, "other"]) == {OWN: MOMENT}


READERS = {
    "itself": lambda catalog, manifest: StoredProgress.from_manifest(manifest),
    "with files": progress_of,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("progress", "problem"),
    [
        *(
            (fields_without(name), f"progress has no field '{name}'")
            for name in PROGRESS_FIELDS
            if name not in OPTIONAL
        ),
        ({**PROGRESS_FIELDS, "watermark": "noon"}, "progress.watermark has 'noon', which is not a time"),
        (
            {**PROGRESS_FIELDS, "watermark": "2026-01-01T00:00:00"},
            "progress.watermark has '2026-01-01T00:00:00', which is not a time",
        ),
        ({**PROGRESS_FIELDS, "watermark": 3}, "progress.watermark is of type int, not a string"),
        ({**PROGRESS_FIELDS, "output_watermarks": [3]}, "progress.output_watermarks has 3, which is not a time"),
        ({**PROGRESS_FIELDS, "behind": {"x": 1}}, "'x'"),
        ({**PROGRESS_FIELDS, "behind_by_file": {"y": 1}}, "'y'"),
        ({**PROGRESS_FIELDS, "newest_event_times": {OWN: "noon"}}, "progress.newest_event_times.source has 'noon'"),
        ({**PROGRESS_FIELDS, "ahead": [{}]}, r"progress.ahead\[0\] has no field 'input'"),
        ({**PROGRESS_FIELDS, "held_back_by": []}, "progress.held_back_by is of type list, not an object"),
        (
            {**PROGRESS_FIELDS, "signals": [{"name": "go", "key": None, "window": [1]}]},
            r"signals\[0\].window is \[1\], not a start",
        ),
        ({**PROGRESS_FIELDS, "inputs": []}, "progress.inputs is of type list, not an object"),
        (with_input_field("offsets", {"mark": ""}), "progress.inputs.source.offsets has no field 'recent'"),
    ],
)
def test_what_is_damaged_is_named(
    catalog: Catalog, read: Callable[[Catalog, Manifest], object], progress: dict[str, Any], problem: str
) -> None:
    manifest = commit_epoch(catalog, progress)
    with pytest.raises(RestoreError, match=problem) as error:
        read(catalog, manifest)
    where = f"snapshot {manifest.snapshot_id} of p (epoch 0) does not say how far it has come: "
    assert str(error.value).startswith(where)


@pytest.mark.parametrize(
    ("progress", "problem"),
    [
        (with_input_field("splits", {"jfk": {}}), "progress.inputs.source.splits.jfk has no field 'lags'"),
        (with_input_field("watermark", None), "progress.inputs.source.watermark is null"),
        (with_input_field("percentile_watermarks", {"half": "-inf"}), "'half'"),
        (with_input_field("offsets", {"mark": "", "recent": 0}), "progress.inputs.source.offsets has no field 'files'"),
    ],
)
def test_so_is_what_only_a_restore_reads(catalog: Catalog, progress: dict[str, Any], problem: str) -> None:
    with pytest.raises(RestoreError, match=problem):
        progress_of(catalog, commit_epoch(catalog, progress))


def test_a_restore_falls_back_below_it(catalog: Catalog) -> None:
    whole = commit_epoch(catalog, PROGRESS_FIELDS)
    commit_epoch(catalog, {**fields_without("watermark"), "signals": None}, whole)
    claim = catalog.claim("main", "next")
    restored_run = restore_head(catalog, claim, lambda manifest: manifest, lambda *_: None, lambda *_: [])
    assert restored_run.head is not None
    assert restored_run.head == whole
    assert restored_run.warning is not None
    assert "progress.signals is null, not an array" in restored_run.warning


def test_what_reads_nothing_repeats_nothing_that_the_epoch_before_read(catalog: Catalog) -> None:
    lacking, rejects = Lacking(OWN, "n", 1, "landing/b.json", None), Rejects(OWN, 3, 5)
    read_some = commit_epoch(
        catalog,
        progress_to_json(
            replace(PROGRESS, lacking=(lacking,), rejects=(rejects,)), signals=SIGNALS, signals_of="r", executor="local"
        ),
    )
    progress = {**read_some.continuing.progress, **epoch_without_reading(Claim("main", 1, None), "s1", "", {}).progress}
    reads_none = commit_epoch(catalog, progress, read_some)
    progress_before, progress_after = progress_of(catalog, read_some), progress_of(catalog, reads_none)
    assert (progress_before.lacking, progress_before.rejects) == ((lacking,), (rejects,))
    assert progress_after == replace(
        progress_before, min_event_time=None, ahead=(), behind={}, behind_by_file={}, lacking=(), rejects=()
    )
    assert StoredProgress.from_manifest(reads_none).signals == ()
    assert StoredProgress.from_manifest(reads_none).signals_of == "r", "which is of all epochs"
    assert "executor" not in reads_none.progress, "nothing was computed on any"


def test_all_that_progress_says_of_an_epoch_is_known_to_be_of_it() -> None:
    reading = replace(PROGRESS, lacking=(Lacking(OWN, "n", 1, "f", None),), rejects=(Rejects(OWN, 3, 5),))
    assert epoch_to_json(reading, signals=SIGNALS, executor="local").keys() == OF_EPOCH
