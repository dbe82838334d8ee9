"""Figures of the newest epoch for the graph of a pipeline: of each input, of each aggregation, of what readers see."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from headrace.model.time import MIN_INSTANT, render
from headrace.model.watermarks import Split
from headrace.read.snapshots.progress import StoredProgress, inputs_read, splits_read, watermarks_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import outputs_of, seen_by, upstream_of
from headrace_snapshots.format.table_names import IDS, INPUTS, REJECTED, UNNAMED
from headrace_snapshots.store import ObjectStore

_SLOWEST: Final = 10
"""Splits of an input that a page names."""


def graph_figures(catalog: Catalog, manifest: Manifest, *, with_values: bool) -> dict[str, Any]:
    """What a page writes beside the steps of the pipeline. Counts are of the epoch of ``manifest``; rows of logs and
    files of inputs of all epochs; open windows of aggregations and rows of ``current`` as they are read, None where
    that takes long. Splits are named ``with_values`` alone: their names come from records. Where outputs have names,
    ``outputs`` has what is each one's own, by name, and of whose panes each is computed.
    """
    splits = splits_read(manifest)
    last = _files_of_epoch(catalog, manifest)
    held = StoredProgress.of(manifest).held_back_by
    inputs = [
        {
            "name": name,
            "files": read.files,
            "bytes": read.bytes,
            "last_files": len(last.get(name, ())),
            "last_bytes": sum(file.size for file in last.get(name, ())),
            "watermark": read.watermark,
            "holds_back": held is not None and held.input == name,
            **_splits(splits[name], with_values=with_values),
        }
        for name, read in inputs_read(manifest).items()
    ]
    shared = {
        "snapshot": manifest.snapshot_id,
        "epoch": manifest.epoch,
        "counts": dict(manifest.counts),
        "inputs": inputs,
        "ids": table_figures(manifest, IDS) if IDS in manifest.tables else None,
    }
    names, store = outputs_of(manifest), catalog.store
    if not names:
        return shared | _own_figures(store, manifest)
    upstream = upstream_of(manifest)
    own = [
        {
            "name": name,
            "of": [*upstream.get(name, ())],
            "counts": dict(seen.counts),
            **_own_figures(catalog.store, seen),
        }
        for name in names
        for seen in (seen_by(manifest, name),)
    ]
    return shared | {"logs": {"rejected": _rows(manifest, REJECTED)}, "outputs": own}


def _own_figures(store: ObjectStore, manifest: Manifest) -> dict[str, Any]:
    """What is an output's own in ``manifest``, which is as the output sees it."""
    from headrace.read.diff.current_files import current_rows, open_windows  # with DuckDB

    return {
        "stages": [
            {
                "watermark": render(watermark),
                "open_windows": open_windows(store, manifest, stage),
                "state": table_figures(manifest, UNNAMED.state(stage)),
            }
            for stage, watermark in enumerate(watermarks_of(manifest).chains[UNNAMED.output])
        ],
        "current": {**table_figures(manifest, UNNAMED.current), "live": current_rows(store, manifest)},
        "logs": {
            view: _rows(manifest, log)
            for view, log in {"panes": UNNAMED.panes, "late": UNNAMED.late, "rejected": REJECTED}.items()
        },
    }


def _rows(manifest: Manifest, log: str) -> int:
    """How many rows a log has; an output that has not begun has none."""
    return manifest.logs[log].rows if log in manifest.logs else 0


def table_figures(manifest: Manifest, name: str) -> dict[str, int]:
    """How large a table is, as `headrace show` says it: a row that was changed later counts once for each layer."""
    layers = manifest.tables.get(name, ())
    files = [file for layer in layers for file in layer.files]
    return {
        "layers": len(layers),
        "files": len(files),
        "rows": sum(layer.rows for layer in layers),
        "bytes": sum(file.bytes for file in files),
    }


def _files_of_epoch(catalog: Catalog, manifest: Manifest) -> Mapping[str, list[InputFile]]:
    """The files that the epoch read, by input."""
    files: dict[str, list[InputFile]] = {}
    for record in islice(catalog.newest_files(manifest.logs[INPUTS]), 1):
        if record.epoch == manifest.epoch:
            for file in record.files:
                assert isinstance(file, InputFile)
                files.setdefault(file.input, []).append(file)
    return files


def _splits(splits: Mapping[str, Split], *, with_values: bool) -> dict[str, Any]:
    """How many splits an input has, and the slowest of them; one without a name is the input itself."""
    if set(splits) <= {""}:
        return {"splits": 0, "slowest": []}
    slowest = sorted(splits.items(), key=lambda split: MIN_INSTANT if split[1].mark is None else split[1].mark)
    return {
        "splits": len(splits),
        "slowest": [
            {
                "split": name if with_values else None,
                "mark": None if split.mark is None else render(split.mark),
                "since": render(split.since),
            }
            for name, split in slowest[:_SLOWEST]
        ],
    }
