"""What pages ask of one pipeline, answered from its catalog as JSON values. Nothing here starts an engine.

Audits have rows only for those who may see them, and Great Expectations' own page (``audit_to_json``).
``graph_figures`` are those of the newest epoch: of each input, of each aggregation, of what readers see. ``Claims``
tell which run made which epochs: the run that had claimed the branch, as the log of the catalog says.
``readers_after_moves`` and those after it say what readers of each output see now, and would see after a decision.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec

from headrace.audit.store import AuditOutcome, Finding, UsualFinding, read_audit
from headrace.errors import HeadraceError
from headrace.model.event_time import Split
from headrace.model.time import MIN_INSTANT, render, to_instant
from headrace.observe.lateness import plot_lateness
from headrace.observe.pane_history import PaneHistory
from headrace.pipeline.quality import ExpectationView
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.progress import StoredProgress, inputs_read, splits_read, watermarks_of
from headrace.read.snapshots.snapshot_refs import named_id, snapshot_at
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.publishing.promotion import rehearse_for_readers
from headrace.runs.recovery_target import TargetBrokenError, check_there, recovery_targets, with_epochs
from headrace.runs.reporting.results import from_json, read_notes
from headrace.runs.reporting.summary import EpochLine, PipelineSummary, summarize_pipeline, written_bytes
from headrace_airflow.markdown import text_for_page, told_of_run
from headrace_airflow.run_ids import run_id_begin
from headrace_snapshots import names as object_names
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import IDS, INPUTS, REJECTED, UNNAMED, Manifest
from headrace_snapshots.format.output_view import output_names, outputs_of, seen_by, upstream_of
from headrace_snapshots.log import Entry
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

SANDBOX: Final = {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}
"""Headers of a stored page, which Great Expectations and a bucket have made. The page runs no script, loads nothing
from elsewhere, and has no part in the origin of Airflow's UI.
"""

_STYLE: Final = (
    b"<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:2rem}nav,footer,.modal{display:"
    b"none!important}table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #8888;padding:.3rem .6rem;"
    b"text-align:left;vertical-align:top}</style></head>"
)
"""A page gets it in place of the end of its head, since it may load no style."""


def audit_to_json(outcome: AuditOutcome, *, with_values: bool) -> dict[str, Any]:
    """An audit; rows and aggregates of values only ``with_values``. ``docs`` are the views that have a page."""
    return {
        "after": outcome.from_snapshot,
        "until": outcome.to_snapshot,
        "output": outcome.output,
        "success": outcome.success,
        "finished_at": outcome.finished_at,
        "rows": {str(view): count for view, count in outcome.rows.items()},
        "docs": sorted({str(finding.view) for finding in outcome.findings}) if with_values else [],
        "findings": [_expectation_json(finding, with_values=with_values) for finding in outcome.findings],
        "limits": [
            {"limit": finding.describe(), "severity": finding.severity, "released": list(finding.released)}
            for finding in outcome.limits
        ],
        "usual": [
            _usual_check_json(finding, with_values=with_values)
            for finding in (() if outcome.usual is None else outcome.usual.findings)
        ],
    }


def _expectation_json(finding: Finding, *, with_values: bool) -> dict[str, Any]:
    return {
        "expectation": finding.expectation.describe(),
        "success": finding.success,
        "unexpected": finding.unexpected_count,
        "of": finding.element_count,
        "observed": finding.observed if with_values else None,
        "failing": [dict(row) for row in finding.failing] if with_values else [],
        "released": list(finding.released),
    }


def _usual_check_json(finding: UsualFinding, *, with_values: bool) -> dict[str, Any]:
    """What was found beside a check against history. Its figures are counts, shares and distances, and no values."""
    return {
        "check": finding.check.describe(),
        "kind": finding.check.kind,
        "bound": finding.check.bound,
        "severity": finding.severity,
        "is_judged": finding.is_judged,
        "said": finding.describe(),
        "observed": finding.observed,
        "usual": finding.usual,
        "versions": finding.versions,
        "failing": [dict(row) for row in finding.failing] if with_values else [],
        "released": list(finding.released),
    }


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
    holder = StoredProgress.from_manifest(manifest).held_back_by
    inputs = [
        {
            "name": name,
            "files": read.files,
            "bytes": read.bytes,
            "last_files": len(last.get(name, ())),
            "last_bytes": sum(file.size for file in last.get(name, ())),
            "watermark": read.watermark,
            "holds_back": holder is not None and holder.input == name,
            **_splits_summary(splits[name], with_values=with_values),
        }
        for name, read in inputs_read(manifest).items()
    ]
    shared_figures = {
        "snapshot": manifest.snapshot_id,
        "epoch": manifest.epoch,
        "counts": dict(manifest.counts),
        "inputs": inputs,
        "ids": table_figures(manifest, IDS) if IDS in manifest.tables else None,
    }
    names, store = outputs_of(manifest), catalog.store
    if not names:
        return shared_figures | _own_figures(store, manifest)
    upstream = upstream_of(manifest)
    own = [
        {
            "name": name,
            "of": [*upstream.get(name, ())],
            "counts": dict(output_manifest.counts),
            **_own_figures(catalog.store, output_manifest),
        }
        for name in names
        for output_manifest in (seen_by(manifest, name),)
    ]
    return shared_figures | {"logs": {"rejected": _row_count(manifest, REJECTED)}, "outputs": own}


def _own_figures(store: ObjectStore, manifest: Manifest) -> dict[str, Any]:
    """What is an output's own in ``manifest``, which is as the output sees it."""
    from headrace.read.diff.layered_tables import current_rows, open_windows  # with DuckDB

    return {
        "stages": [
            {
                "watermark": render(watermark),
                "open_windows": open_windows(store, manifest, stage),
                "state": table_figures(manifest, UNNAMED.state_table(stage)),
            }
            for stage, watermark in enumerate(watermarks_of(manifest).chains[UNNAMED.output])
        ],
        "current": {**table_figures(manifest, UNNAMED.current), "live": current_rows(store, manifest)},
        "logs": {
            view: _row_count(manifest, log)
            for view, log in {"panes": UNNAMED.panes, "late": UNNAMED.late, "rejected": REJECTED}.items()
        },
    }


def _row_count(manifest: Manifest, log: str) -> int:
    """How many rows a log has; an output that has not begun has none."""
    return manifest.logs[log].rows if log in manifest.logs else 0


def table_figures(manifest: Manifest, name: str) -> dict[str, int]:
    """How large a table is, as `headrace show` says it: a row that was changed later counts once for each layer."""
    layers = manifest.tables.get(name, ())
    return {
        "layers": len(layers),
        "files": sum(layer.file_count for layer in layers),
        "rows": sum(layer.rows for layer in layers),
        "bytes": sum(layer.bytes for layer in layers),
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


def _splits_summary(splits: Mapping[str, Split], *, with_values: bool) -> dict[str, Any]:
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


_ENTRIES_LOOKED_AT: Final = 2_000
"""Entries of the log that one question looks through at most."""

ClaimName = tuple[str, int]
"""A branch, and the generation that a claim gave it."""


class Claims:
    """The claims in the log of ``catalog``. Entries never change, so each is read once. Usable from many threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._owners: dict[ClaimName, str] = {}
        self._newest, self._oldest = -1, -1  # entries that were looked at, from the oldest to the newest
        self._lock = threading.Lock()

    def owners(self, claim_names: Collection[ClaimName]) -> dict[ClaimName, str]:
        """Who made each of the claims, as far as the newest entries tell: the id of a run."""
        with self._lock:
            self._search_entries(claim_names)
            return {claim: self._owners[claim] for claim in claim_names if claim in self._owners}

    def _search_entries(self, wanted_claims: Collection[ClaimName]) -> None:
        """Look through entries that are new, and then through older ones until all ``wanted_claims`` are found."""
        end = self._catalog.known_head().entry
        new = end - self._newest
        if self._newest < 0 or new > _ENTRIES_LOOKED_AT:
            self._newest, self._oldest, new = end, end + 1, 0
        for entry in islice(self._catalog.entries(end + 1), new):
            self._remember_claim(entry)
        self._newest = end
        for entry in islice(self._catalog.entries(self._oldest), _ENTRIES_LOOKED_AT):
            if all(claim in self._owners for claim in wanted_claims):
                break
            self._remember_claim(entry)
            self._oldest = entry.number

    def _remember_claim(self, entry: Entry) -> None:
        if entry.kind is Kind.CLAIM and entry.branch is not None:
            self._owners[entry.branch, entry.generations[entry.branch]] = str(entry.detail["owner"])


Readers = dict[str, dict[str, dict[str, Any] | None]]
"""By output ("": the one without a name): the snapshot ``before`` and ``after``, None where readers see nothing."""


def readers_after_moves(catalog: Catalog, moves: Mapping[str, Sequence[str | None]]) -> Readers:
    """After ``moves`` of refs, each from one snapshot to another."""
    refs_after = {
        object_names.output_of(ref): new_id for ref, (_, new_id) in moves.items() if object_names.is_published(ref)
    }
    return _change_for_readers(catalog, {**_seen_snapshots(catalog), **refs_after})


def readers_after_release(catalog: Catalog, snapshot: str, output: str) -> Readers:
    """After a release of ``snapshot`` for one ``output``; "": for all."""
    seen_snapshots = _seen_snapshots(catalog)
    return _change_for_readers(
        catalog,
        {name: snapshot if output in ("", name) else published_id for name, published_id in seen_snapshots.items()},
    )


def readers_after_promotion(catalog: Catalog, branch: str) -> Readers:
    """After ``branch`` has become main, with the outputs that it has."""
    head = catalog.known_head().refs.get(branch)
    names = () if head is None else output_names(catalog.manifest(head))
    return _change_for_readers(catalog, dict.fromkeys(names, head))


def readers_after_patch(catalog: Catalog, branch: str) -> Readers:
    """After main has got one more epoch with rows of ``branch``."""
    main = catalog.known_head().refs.get(object_names.MAIN)
    if main is None:
        return {}
    patched_snapshot = {"snapshot": f"a patch by {branch}", "epoch": catalog.link(main).epoch + 1}
    return {
        name: {"before": _snapshot_with_epoch(catalog, published_id), "after": patched_snapshot}
        for name, published_id in _seen_snapshots(catalog).items()
    }


def _seen_snapshots(catalog: Catalog) -> dict[str, str | None]:
    """What readers see of each output of main, and of those that have been published."""
    refs = catalog.known_head().refs
    names = output_names(catalog.manifest(refs[object_names.MAIN])) if object_names.MAIN in refs else ()
    return {**dict.fromkeys(names), **object_names.published_of(refs)}


def _change_for_readers(catalog: Catalog, snapshots_after: Mapping[str, str | None]) -> Readers:
    seen_snapshots = _seen_snapshots(catalog)
    return {
        name: {
            "before": _snapshot_with_epoch(catalog, seen_snapshots.get(name)),
            "after": _snapshot_with_epoch(catalog, snapshots_after.get(name)),
        }
        for name in {**seen_snapshots, **snapshots_after}
    }


def _snapshot_with_epoch(catalog: Catalog, snapshot: str | None) -> dict[str, Any] | None:
    return None if snapshot is None else {"snapshot": snapshot, "epoch": catalog.link(snapshot).epoch}


MOST_ROWS = 200
"""Rows of a view that a page shows."""

_NOTHING_GIVEN_UP = "main is there already: nothing is given up"

_ENTRIES_SEARCHED = 400
"""Entries of the log that are looked through for publishes."""


class PipelinePage:
    """The answers about one pipeline. Everything is read from ``catalog``, whose manifests stay in memory."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._reader = PipelineReader(catalog)
        self._claims = Claims(catalog)
        self._figures: tuple[tuple[str, bool], dict[str, Any]] | None = None

    def summary(self, old_summary: PipelineSummary | None) -> PipelineSummary:
        """The summary, as the catalog is now; what is the same is taken from ``old_summary``."""
        return summarize_pipeline(self._catalog, old_summary).as_of(to_instant(datetime.now(UTC)))

    def sinks(self) -> list[dict[str, Any]]:
        """What sinks held when they were delivered to last, and whether it is what readers see."""
        published_ids = object_names.published_of(self._catalog.known_head().refs)
        notes = read_notes(self._catalog.store, self._catalog.pipeline)
        return [
            {**msgspec.to_builtins(one), "is_current": one.snapshot == published_ids.get(one.output)} for one in notes
        ]

    def history(self, limit: int, before_entry: int | None) -> dict[str, Any]:
        """Entries of the log, newest first, and the snapshots among them with their parents."""
        return {
            "entries": self._reader.log(limit=limit, before=before_entry).to_json(),
            "graph": self._reader.graph(limit=limit, before=before_entry).to_json(),
        }

    def epochs(self, ref: str, limit: int) -> list[dict[str, Any]]:
        """The newest epochs up to a snapshot, oldest first."""
        head = snapshot_at(self._catalog, ref).manifest
        if head is None:
            return []
        newest_first = [
            EpochLine.from_manifest(manifest) for manifest in islice(self._catalog.ancestry(head.snapshot_id), limit)
        ]
        return [msgspec.to_builtins(line) for line in reversed(newest_first)]

    def writers(self, ref: str, limit: int) -> dict[int, str]:
        """The id of the run that made each of the newest epochs up to a snapshot, as far as the log still tells."""
        head = snapshot_at(self._catalog, ref).manifest
        if head is None:
            return {}
        manifests = [*islice(self._catalog.ancestry(head.snapshot_id), limit)][::-1]
        owners = self._claims.owners({(one.branch, one.generation) for one in manifests})
        claims = {one.epoch: (one.branch, one.generation) for one in manifests}
        return {epoch: owners[claim] for epoch, claim in claims.items() if claim in owners}

    def graph(self, ref: str, *, with_values: bool) -> dict[str, Any] | None:
        """Figures for the steps of the pipeline, as a snapshot has them; None as long as there is none."""
        head = snapshot_at(self._catalog, ref).manifest
        if head is None:
            return None
        figures_key = (head.snapshot_id, with_values)
        if self._figures is None or self._figures[0] != figures_key:  # rows are counted once for each snapshot
            self._figures = figures_key, graph_figures(self._catalog, head, with_values=with_values)
        return self._figures[1]

    def lateness(self, ref: str, epochs: int, output: str) -> dict[str, Any]:
        """How late the data of the newest epochs was: counts, and quantiles in seconds."""
        return plot_lateness(self._output_reader(output).catalog, ref, epochs, None).to_json()

    def pane_keys(self, ref: str, epochs: int, limit: int, output: str) -> dict[str, Any] | None:
        """Keys of which the newest epochs have panes; None as long as there is no snapshot."""
        history = self._pane_history(ref, epochs, output)
        return None if history is None else history.newest_keys(limit).to_json()

    def panes(self, ref: str, epochs: int, key: Any, limit: int, output: str) -> dict[str, Any] | None:
        """The panes of a key that the newest epochs emitted, to be drawn; None as long as there is no snapshot."""
        history = self._pane_history(ref, epochs, output)
        return None if history is None else history.of_key(key, limit).to_json()

    def _pane_history(self, snapshot_ref: str, epochs: int, output: str) -> PaneHistory | None:
        catalog = self._output_reader(output).catalog
        head = snapshot_at(catalog, snapshot_ref).manifest
        return None if head is None else PaneHistory(catalog, head, epochs)

    def _output_reader(self, output: str) -> PipelineReader:
        """The results of one ``output``; "": of the only one, which has no name. Raises UnknownOutputError."""
        return self._reader[output] if output else self._reader

    def audits(self, limit: int, *, with_values: bool) -> list[dict[str, Any]]:
        """The newest audits, newest first: of what is not published, and of each range that was. ``is_next``: readers
        would see all of main by it.
        """
        audits: list[dict[str, Any]] = []
        refs = self._catalog.known_head().refs
        main, published_ids = refs.get(object_names.MAIN), object_names.published_of(refs)
        for output, begin, end in islice(self._audited_ranges(), limit):
            try:
                outcome = read_audit(self._catalog.store, self._catalog.pipeline, begin, end, output)
            except HeadraceError as error:
                problem = f"{error.code}: {error}"
                audits.append({"after": begin, "until": end, "output": output, "problem": problem})
                continue
            if outcome is not None:
                is_next = end == main != published_ids.get(output)
                audits.append({**audit_to_json(outcome, with_values=with_values), "is_next": is_next})
        return audits

    def data_docs(self, from_snapshot: str | None, to_snapshot: str, view: ExpectationView, output: str = "") -> bytes:
        """The page that Great Expectations made of an audit's view. Raises ObjectNotFoundError if there is none."""
        begin, end = (
            None if snapshot_ref is None else snapshot_at(self._catalog, snapshot_ref).manifest
            for snapshot_ref in (from_snapshot, to_snapshot)
        )
        if end is None:
            raise ObjectNotFoundError(f"{to_snapshot} is the beginning: nothing was audited up to there")
        range_ = (None if begin is None else begin.snapshot_id, end.snapshot_id)
        folder = object_names.audit_folder(self._catalog.pipeline, *range_, output)
        return self._catalog.store.read(f"{folder}/docs/{view}.html").replace(b"</head>", _STYLE, 1)

    def rows(self, view: str, ref: str, where: str | None, limit: int, output: str) -> dict[str, Any]:
        """The first rows of a view, how many there are, and its columns."""
        rows = self._output_reader(output).read(view, at=ref, where=where)
        first_rows = rows.head(min(limit, MOST_ROWS))
        return {"columns": [*rows.schema.names], "rows": [*first_rows], "total": len(rows)}

    def diff(self, old_ref: str, new_ref: str, limit: int, output: str, *, with_values: bool) -> dict[str, Any]:
        """What differs for readers between two snapshots, tags or branches."""
        from headrace.read.diff.comparison import (
            compared_sides,
            diff_for_readers,  # with DuckDB
        )

        catalog = self._output_reader(output).catalog
        sides = compared_sides(catalog, old_ref, new_ref)
        return diff_for_readers(catalog, *sides, limit=limit if with_values else 0).to_json()

    def rollback(self, target_ref: str, branch: str) -> dict[str, Any]:
        """What a rollback of ``branch`` would move, and what would be lost by it; nothing moves."""
        given_up: dict[str, Any] = (
            PipelineHandle(self._catalog).rollback(to=target_ref, branch=branch, dry_run=True).to_json()
        )
        return given_up | {"readers": readers_after_moves(self._catalog, given_up["moves"])}

    def release(self, snapshot: str, output: str, limit: int, *, with_values: bool) -> dict[str, Any]:
        """What readers would see change if ``snapshot`` were released; nothing moves."""
        difference = self.diff(object_names.PUBLISHED, snapshot, limit, output, with_values=with_values)
        released_id = named_id(self._catalog, self._catalog.known_head(), snapshot)
        return difference | {"readers": readers_after_release(self._catalog, released_id, output)}

    def recovery_targets(self, limit: int) -> list[Any]:
        """The newest snapshots of main to which a recovery can go back, newest first."""
        return [target.to_json() for target in recovery_targets(self._catalog, limit)]

    def recovery(self, target_ref: str) -> dict[str, Any]:
        """What a recovery from ``target_ref`` would move, compute again and take from readers; nothing moves."""
        head = self._catalog.known_head()
        snapshot = named_id(self._catalog, head, target_ref)
        refusals = []
        try:
            check_there(self._catalog, snapshot)
        except TargetBrokenError as error:
            refusals.append({"code": error.code, "message": text_for_page(str(error))})
        if head.refs.get(object_names.MAIN) == snapshot:
            readers = readers_after_moves(self._catalog, {})
            return {"moves": {}, "patches": [], "told": [_NOTHING_GIVEN_UP], "refusals": refusals, "readers": readers}
        try:
            given_up = PipelineHandle(self._catalog).rollback(to=snapshot, dry_run=True)
        except RefusedError as error:
            refusals.append({"code": error.code, "message": text_for_page(str(error))})
            return {"moves": {}, "patches": [], "told": [], "refusals": refusals}
        readers = readers_after_moves(self._catalog, given_up.moves)
        return {**with_epochs(self._catalog, given_up).to_json(), "refusals": refusals, "readers": readers}

    def promotion(self, branch: str, limit: int, *, patch: bool, with_values: bool) -> dict[str, Any]:
        """What readers would see change if ``branch`` were promoted, and what is against it; nothing moves."""
        limit = limit if with_values else 0
        if patch:
            rehearsal = PipelineHandle(self._catalog).promote(branch, patch=True, dry_run=True, limit=limit)
            return {**rehearsal.to_json(), "readers": readers_after_patch(self._catalog, branch)}
        readers = readers_after_promotion(self._catalog, branch)
        return {**rehearse_for_readers(self._catalog, branch, limit=limit).to_json(), "readers": readers}

    def snapshot(self, snapshot_ref: str) -> dict[str, Any]:
        """A snapshot: its manifest's figures, files by table and log, costs."""
        manifest = self._reader.show(snapshot_ref)
        refs = self._catalog.known_head().refs
        return {
            "snapshot": manifest.snapshot_id,
            "epoch": manifest.epoch,
            "branch": manifest.branch,
            "parent": manifest.parent,
            "created_at": manifest.created_at,
            "generation": manifest.generation,
            "refs": sorted(ref for ref, snapshot in refs.items() if snapshot == manifest.snapshot_id),
            "patch": None if manifest.patch is None else manifest.patch.to_json(),
            "watermark": render(StoredProgress.from_manifest(manifest).watermark),
            "counts": dict(manifest.counts),
            "timings": dict(manifest.timings),
            "requests": dict(manifest.requests),
            "written_bytes": written_bytes(manifest),
            "tables": {name: table_figures(manifest, name) for name in manifest.tables},
            "logs": {name: {"files": log.files, "rows": log.rows} for name, log in manifest.logs.items()},
        }

    def results(self, dag_id: str, run_id: str, task_id: str, *, with_values: bool) -> list[dict[str, Any]]:
        """The results that tasks of a DAG run left, or one of its tasks, oldest first."""
        store = self._catalog.store
        begin = run_id_begin(dag_id, run_id, task_id)
        objects = store.list(
            f"{object_names.object_folder(self._catalog.pipeline, object_names.ObjectKind.RUNS)}{begin}"
        )
        results = [from_json(store.read(info.path)) for info in objects]
        oldest_first = sorted(results, key=lambda result: result.finished_at)
        return [told_of_run((result if with_values else result.without_values).to_json()) for result in oldest_first]

    def _audited_ranges(self) -> Iterator[tuple[str, str | None, str]]:
        """The range of each output that is to be audited next, then each that was published, newest first."""
        refs = self._catalog.known_head().refs
        published_ids = object_names.published_of(refs)
        if object_names.MAIN in refs:
            for output in output_names(self._catalog.manifest(refs[object_names.MAIN])):
                if refs[object_names.MAIN] != published_ids.get(output):
                    yield output, published_ids.get(output), refs[object_names.MAIN]
        for entry in islice(self._catalog.entries(), _ENTRIES_SEARCHED):
            for ref, (begin, end) in entry.moves.items():
                if object_names.is_published(ref) and end is not None:
                    yield object_names.output_of(ref), begin, end
