"""The commands of ``headrace``: their arguments, and what they print.

Results go to stdout, everything else to stderr; the exit code is that of the error's branch (headrace.errors). Spark,
Great Expectations, DuckDB and matplotlib are imported by the commands that need them: the others start at once.
"""

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.app import Branch, Output, PipelineArgument, Root, SnapshotArgument, ViewOption, app, command
from headrace.cli.output import Format, notice, print_fields, print_json, print_lines, print_table
from headrace.errors import FixConfigError
from headrace.model.panes import PANE_COLUMNS, WINDOW_END, WINDOW_START
from headrace.model.time import render
from headrace.pipeline.executors import Executor
from headrace.pipeline.registry import registered_files, resolve
from headrace.read.branches import manifest_of
from headrace.read.progress import StoredProgress
from headrace.read.roots import check_root
from headrace.runs.options import MAIN, Mode, RunOptions, parse_clock, parse_signal
from headrace_snapshots.catalog import PUBLISHED, Catalog, Head, LostEntry
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectNotFoundError, open_store

BEGINNING = "beginning"
SHOWN_ROWS = 20
QUIET = frozenset(PANE_COLUMNS) - {WINDOW_START, WINDOW_END, "timing", "pane_index", "is_retraction", "epoch"}
"""Pane columns that a table for people leaves out."""


@command
def run(
    pipeline: PipelineArgument,
    *,
    root: Root,
    max_epochs: Annotated[int | None, typer.Option(help="Stop after so many epochs.")] = None,
    files_per_epoch: Annotated[int | None, typer.Option(help="Files in one epoch, at most.")] = None,
    executor: Annotated[
        Executor | None,
        typer.Option(
            help="Where epochs are computed: as Spark jobs, in this process without a JVM, or wherever they fit; "
            "by default as the pipeline says."
        ),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="batch: all input in one epoch, to the end. replay: with a clock of its own.")
    ] = Mode.MICRO_BATCH,
    branch: Annotated[str, typer.Option(help="The branch to run on; a replay fills an empty one, or goes on.")] = MAIN,
    of: Annotated[
        str | None, typer.Option(help="replay: the branch or tag whose epochs run again; main unless --clock is given.")
    ] = None,
    clock: Annotated[
        str | None, typer.Option(help="replay: when the first epoch runs, like 2026-01-01T00:00:00Z.")
    ] = None,
    clock_step: Annotated[str | None, typer.Option(help="replay: time from epoch to epoch, like 5m.")] = None,
    signal: Annotated[
        list[str] | None, typer.Option(help='Signal for open windows: NAME, or NAME=["key"] for one key. Repeatable.')
    ] = None,
    publish: Annotated[
        bool | None, typer.Option("--publish/--no-publish", help="Publish when the audit succeeds; by default on main.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make a root that does not exist, even if there is no input.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse to go on if code of your own has changed since the last snapshot.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Process what has landed, audit it, publish it. Or replay it on a branch of its own."""
    from headrace.cli.run import new_run_id, run_recorded, watching
    from headrace.runs.report import Where, ending
    from headrace.runs.results import to_json

    options = RunOptions(
        new_run_id(),
        max_epochs=max_epochs,
        files_per_epoch=files_per_epoch,
        mode=mode,
        executor=executor,
        branch=branch,
        publish=branch == MAIN and mode is not Mode.REPLAY if publish is None else publish,
        signals=tuple(map(parse_signal, signal or ())),
        of=of,
        clock=parse_clock(clock, clock_step),
        strict=strict,
        create=create,
    )
    with watching() as watcher:
        result = run_recorded(resolve(pipeline), root, options, watcher)
    if output is Format.JSON:
        print_lines([to_json(result).decode()])
        return
    print_lines(ending(result, Where(pipeline, root)))


@command
def read(
    pipeline: PipelineArgument,
    *,
    root: Root,
    view: ViewOption = "current",
    branch: Branch = PUBLISHED,
    where: Annotated[
        str | None, typer.Option(help="A condition over the columns (SQL), such as 'flights > 20'.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="What to order by (SQL), such as 'max_delay desc'.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help=f"Rows; {SHOWN_ROWS} in a table, all in JSON.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the rows of a view: what a pipeline has found."""
    from headrace.read import views

    found = resolve(pipeline)
    rows = views.query(views.read(found, _existing(root), views.view(view), branch, tell=notice), where, order)
    if output is Format.JSON:
        print_json(rows.slice(0, limit).to_pylist())
        return
    shown = rows.slice(0, SHOWN_ROWS if limit is None else limit)
    first = [*found.key, WINDOW_START, WINDOW_END]
    columns = sorted((n for n in rows.schema.names if n not in QUIET), key=lambda n: n not in first)
    print_table(columns, ([row[name] for name in columns] for row in shown.to_pylist()))
    notice(f"{shown.num_rows:,} of {rows.num_rows:,} rows of {view} on {branch}")


@command
def files(
    pipeline: PipelineArgument,
    *,
    root: Root,
    view: ViewOption = "current",
    branch: Branch = PUBLISHED,
    output: Output = Format.TEXT,
) -> None:
    """Print the Parquet files of a view, for readers of your own."""
    from headrace.read import views

    named = views.files(resolve(pipeline), _existing(root), views.view(view), branch, tell=notice)
    if output is Format.JSON:
        print_json(named)
    else:
        print_lines(named)


@command
def replay_late(
    pipeline: PipelineArgument,
    *,
    root: Root,
    to: Annotated[
        str | None,
        typer.Option(
            help="Landing prefix: a path below the root, or a URI; by default that of the source, below ROOT/late.",
            show_default=False,
        ),
    ] = None,
    branch: Branch = PUBLISHED,
    output: Output = Format.TEXT,
) -> None:
    """Land the records that came too late once more, as files of the source's format; each only once."""
    from headrace.runs.late import land_late

    landed = land_late(resolve(pipeline), _existing(root), to=to, branch=branch)
    if output is Format.JSON:
        print_json(asdict(landed))
        return
    print_fields(asdict(landed), f"late records of {branch}")
    if landed.is_own:
        notice(
            "The next run takes them in, and behind the same watermark they are late again. The files that they came "
            "from lie here too: whoever reads from the beginning (a backfill, a batch) finds them twice"
        )
    elif to is None:
        notice(f"Their part of the results: headrace run {pipeline} --root {root.rstrip('/')}/late --mode batch")


@command
def log(
    pipeline: PipelineArgument,
    *,
    root: Root,
    limit: Annotated[int, typer.Option(min=1, help="Entries to print.")] = 20,
    before: Annotated[int | None, typer.Option(help="Only entries with a lower number.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Print the catalog log, newest entry first: commits, publishes, rollbacks."""
    entries = list(islice(_catalog(pipeline, root).history(before), limit))
    if output is Format.JSON:
        print_json([entry.to_json() for entry in entries])
        return
    print_table(["entry", "at", "kind", "moves", "message"], map(_log_row, entries))


@command
def show(
    snapshot: SnapshotArgument,
    *,
    root: Root,
    pipeline: Annotated[
        str | None, typer.Option(help="The snapshot's pipeline; else registered ones are searched.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Print a snapshot: clocks, counts, tables, timings, storage requests. With --pipeline also a branch or a tag."""
    manifest = _find(snapshot, root, pipeline)
    if output is Format.JSON:
        print_json(manifest.to_json())
        return
    own = ("snapshot_id", "pipeline", "branch", "epoch", "parent", "generation", "created_at")
    clocks = {name: value for name, value in manifest.progress.items() if name != "inputs"}
    if holder := StoredProgress.of(manifest).held_back_by:
        clocks["held_back_by"] = ", ".join(f"{name} {value}" for name, value in holder.to_json().items() if value)
    print_fields({name: getattr(manifest, name) for name in own} | clocks, "snapshot")
    stored = [
        (name, "layers", len(layers), sum(layer.rows for layer in layers)) for name, layers in manifest.tables.items()
    ]
    stored += [(name, "files", log.files, log.rows) for name, log in manifest.logs.items()]
    print_table(["table", "", "number", "rows"], stored, "tables")
    print_fields(manifest.counts, "counts of this epoch")
    print_fields({**manifest.timings, **{f"{kind} requests": n for kind, n in manifest.requests.items()}}, "costs")


@command
def rollback(
    pipeline: PipelineArgument,
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help=f"An id, a tag, or {BEGINNING!r}.", show_default=False)
    ],
    *,
    root: Root,
    branch: Annotated[str, typer.Option(help="The branch to move back.")] = MAIN,
    message: Annotated[str, typer.Option(help="Why; kept in the log.")] = "rolled back by hand",
    output: Output = Format.TEXT,
) -> None:
    """Move a branch back to a snapshot; 'published' moves with it if it is newer. The next run goes on from there."""
    catalog = _catalog(pipeline, root)
    to = None if snapshot == BEGINNING else _id(catalog.known_head(), snapshot)
    _print_entry(catalog.rollback(branch, to, message), output)


@command
def release(
    pipeline: PipelineArgument,
    snapshot: SnapshotArgument,
    *,
    root: Root,
    message: Annotated[str, typer.Option(help="Who decided it, and why; kept in the log.", show_default=False)],
    output: Output = Format.TEXT,
) -> None:
    """Publish a snapshot whose audit failed: a person's decision, recorded with its reason."""
    catalog = _catalog(pipeline, root)
    _print_entry(catalog.release(_id(catalog.head(), snapshot), message), output)
    notice(f"In Airflow the next run of headrace_{catalog.pipeline}_process announces it to those downstream")


@command
def plot(
    pipeline: PipelineArgument,
    *,
    root: Root,
    out: Annotated[Path | None, typer.Option(help="Draw event time against processing time into this file.")] = None,
    branch: Branch = MAIN,
    epochs: Annotated[int, typer.Option(min=1, help="The last so many epochs.")] = 200,
    output: Output = Format.TEXT,
) -> None:
    """Sum up how late the data was, with quantiles for choosing bound and allowed lateness; draw it with --out."""
    from headrace.observe.history import SUMMARY, history, totals
    from headrace.observe.lateness import lateness, seconds, told

    catalog = _catalog(pipeline, root)
    head = manifest_of(catalog, branch)
    found = [] if head is None else history(catalog, head.snapshot_id, epochs)
    if out is not None:
        from headrace.observe.picture import draw

        draw(found, f"{catalog.pipeline} on {branch}: event time, processing time, watermark", out)
    sums, late = totals(found), lateness(catalog, head, found)
    if output is Format.JSON:
        picture = None if out is None else str(out)
        print_json({"epochs": len(found), "counts": sums, "lateness_seconds": seconds(late), "picture": picture})
        return
    print_fields({words: sums.get(name, 0) for name, words in SUMMARY}, f"{catalog.pipeline}: {len(found)} epochs")
    print_fields(told(late), "how late")
    if out is not None:
        notice(f"drawn: {out}")


@command
def pipelines(
    root: Annotated[
        str | None, typer.Option(help="Also say how far each is under this root.", envvar="HEADRACE_ROOT")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """List the registered pipelines: those that ship, and those in the folders of HEADRACE_PIPELINES."""
    rows = []
    found = registered_files()
    for name, each in found.pipelines.items():
        row = {"name": name, "description": each.pipeline.description, "source": each.pipeline.source.path}
        rows.append(row if root is None else {**row, **_refs(Catalog(open_store(root), name))})
    if output is Format.JSON:
        print_json(rows)
    else:
        columns = list(rows[0]) if rows else ["name"]
        print_table(columns, ([row[column] for column in columns] for row in rows))
    for why in found.broken.values():
        notice(f"cannot be used: {why}")


@command
def conformance(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of conformance cases.", show_default=False)],
    executor: Annotated[str, typer.Option(help="Which executor runs them.")] = "reference",
    only: Annotated[str | None, typer.Option(help="Only cases whose name matches this glob.")] = None,
    output: Output = Format.TEXT,
) -> None:
    """Run conformance cases of the Dataflow Model on an executor."""
    from headrace.conformance.command import conformance as run_cases

    raise typer.Exit(run_cases(file, executor, only, output.value))


def main() -> None:
    """The entry point of the command ``headrace``."""
    app()


def _existing(root: str) -> str:
    """``root``. Raises MissingRootError if there is none: what is not there is no pipeline without results."""
    check_root(open_store(root))
    return root


def _catalog(pipeline: str, root: str) -> Catalog:
    return Catalog(open_store(_existing(root)), resolve(pipeline).name)


def _id(head: Head, snapshot: str) -> str:
    """``snapshot`` itself, or what the branch or tag of that name points to."""
    return head.refs.get(snapshot) or head.refs.get(f"tags/{snapshot}") or snapshot


def _find(snapshot: str, root: str, pipeline: str | None) -> Manifest:
    if pipeline is not None:
        catalog = _catalog(pipeline, root)
        return catalog.manifest(_id(catalog.head(), snapshot))
    store = open_store(_existing(root))
    for name in registered_files().pipelines:
        try:
            store.stat(f"{name}/manifests/{snapshot}.json")
        except ObjectNotFoundError:
            continue
        return Catalog(store, name).manifest(snapshot)
    raise FixConfigError(
        f"no registered pipeline has a snapshot {snapshot!r} under {root}; `headrace log PIPELINE` lists ids, "
        "--pipeline names a pipeline that is not registered"
    )


def _moves(entry: Entry) -> str:
    return ", ".join(f"{ref}: {old or '-'} → {new or '-'}" for ref, (old, new) in entry.moves.items())


def _log_row(entry: Entry | LostEntry) -> tuple[int, str, str, str, str]:
    if isinstance(entry, LostEntry):
        return entry.number, "", "lost", "", entry.problem
    return entry.number, entry.at, entry.kind.value, _moves(entry), entry.message


def _print_entry(entry: Entry, output: Format) -> None:
    if output is Format.JSON:
        print_json(entry.to_json())
    else:
        print_fields(
            {"entry": entry.number, "kind": entry.kind.value, "moves": _moves(entry), "message": entry.message}
        )


def _refs(catalog: Catalog) -> dict[str, str | int | None]:
    """Where main and published are: the epochs, and the watermark of main."""
    refs = catalog.head().refs
    found = {ref: catalog.manifest(refs[ref]) if ref in refs else None for ref in (MAIN, PUBLISHED)}
    epochs: dict[str, str | int | None] = {ref: None if m is None else m.epoch for ref, m in found.items()}
    main_head = found[MAIN]
    return {**epochs, "watermark": None if main_head is None else render(StoredProgress.of(main_head).watermark)}
