"""The commands over the catalog: log, show, release, tag, drop."""

from typing import TYPE_CHECKING, Annotated

from headrace.cli.app import Output, PipelineArgument, RefArgument, Root, SnapshotArgument, command
from headrace.cli.completion import complete_snapshot
from headrace.cli.display.output import Format, notice, print_fields, print_json, print_lines, print_table
from headrace.cli.parameters import Argument, Option
from headrace_snapshots.refs import MAIN

if TYPE_CHECKING:
    from headrace_snapshots.format.entry import Entry
    from headrace_snapshots.format.manifest import Patch


@command("headrace log delays.py --root file:///tmp/hr --limit 5")
def log(
    pipeline: PipelineArgument,
    *,
    root: Root,
    limit: Annotated[int, Option(min=1, help="Entries to print.")] = 20,
    before: Annotated[int | None, Option(min=0, help="Only entries with a lower number.")] = None,
    graph: Annotated[
        bool,
        Option(
            help="Draw each snapshot with its parent, without claims and publishes. o: no branch or tag leads there "
            "any more.",
        ),
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Print the catalog log, newest entry first: commits, publishes, rollbacks. Or draw its snapshots as a graph."""
    from headrace.cli.catalog_names import handle_of
    from headrace.read.log_entries import COLUMNS

    handle = handle_of(pipeline, root)
    if graph:
        drawn = handle.graph(limit=limit, before=before)
        if output is Format.JSON:
            print_json(drawn.to_json())
        else:
            print_lines(drawn.lines())
        return
    entries = handle.log(limit=limit, before=before)
    if output is Format.JSON:
        print_json(entries.to_json())
    else:
        print_table(COLUMNS, entries.rows())


@command("headrace show delays.py main --root file:///tmp/hr")
def show(
    pipeline: PipelineArgument,
    snapshot: SnapshotArgument,
    *,
    root: Root,
    output: Output = Format.TEXT,
) -> None:
    """Print a snapshot: clocks, counts, tables, timings, storage requests."""
    from headrace.cli.catalog_names import handle_of
    from headrace.model.time import render
    from headrace.read.snapshots.progress import StoredProgress

    manifest = handle_of(pipeline, root).show(snapshot)
    if output is Format.JSON:
        print_json(manifest.to_json())
        return
    own = ("snapshot_id", "pipeline", "branch", "epoch", "parent", "generation", "created_at")
    clocks = {name: value for name, value in manifest.progress.items() if name != "inputs"}
    progress = StoredProgress.of(manifest)
    if progress.held_to is not None:
        clocks["held_to"] = f"watermark {render(progress.held_to.watermark)} of main"
    if holder := progress.held_back_by:
        clocks["held_back_by"] = ", ".join(f"{name} {value}" for name, value in holder.to_json().items() if value)
    patched = {} if manifest.patch is None else {"newest patch": _patched(manifest.patch)}
    print_fields({name: getattr(manifest, name) for name in own} | clocks | patched, "snapshot")
    stored = [
        (name, "layers", len(layers), sum(layer.rows for layer in layers)) for name, layers in manifest.tables.items()
    ]
    stored += [(name, "files", log.files, log.rows) for name, log in manifest.logs.items()]
    print_table(["table", "", "number", "rows"], stored, "tables")
    print_fields(manifest.counts, "counts of this epoch")
    print_fields({**manifest.timings, **{f"{kind} requests": n for kind, n in manifest.requests.items()}}, "costs")


@command("headrace release delays.py main --root file:///tmp/hr --message 'checked by hand: the strike of May'")
def release(
    pipeline: PipelineArgument,
    snapshot: SnapshotArgument,
    *,
    root: Root,
    message: Annotated[str, Option(help="Who decided it, and why; kept in the log.")],
    output: Output = Format.TEXT,
) -> None:
    """Publish a snapshot whose audit failed: a person's decision, recorded with its reason."""
    from headrace.cli.catalog_names import handle_of

    handle = handle_of(pipeline, root)
    print_entry(handle.release(snapshot, message=message), output)
    notice(f"In Airflow the next run of the process DAG of {handle.name} announces this to DAGs downstream")


@command("headrace tag delays.py before-the-change --root file:///tmp/hr")
def tag(
    pipeline: PipelineArgument,
    name: Annotated[str, Argument(metavar="NAME", help="The new tag.")],
    snapshot: Annotated[
        str,
        Argument(metavar="[SNAPSHOT]", help="A snapshot's id, a branch or a tag.", complete=complete_snapshot),
    ] = MAIN,
    *,
    root: Root,
    output: Output = Format.TEXT,
) -> None:
    """Give a snapshot a name that stays: to read it, to roll back to it, to replay it."""
    from headrace.cli.catalog_names import handle_of

    print_entry(handle_of(pipeline, root).tag(name, snapshot), output)


@command("headrace drop delays.py before-the-change --root file:///tmp/hr")
def drop(
    pipeline: PipelineArgument,
    name: RefArgument,
    *,
    root: Root,
    message: Annotated[str, Option(help="Why; kept in the log.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Drop a branch or a tag, and say which still stand. Its snapshots stay in the store."""
    from headrace.cli.catalog_names import handle_of

    entry = handle_of(pipeline, root).drop(name, message=message)
    print_entry(entry, output)
    if output is Format.TEXT:
        standing = {**dict.fromkeys(entry.generations), **entry.refs}
        print_table(["branch or tag", "snapshot"], sorted(standing.items()), "what still stands")


def _patched(patch: "Patch") -> str:
    return f"epoch {patch.epoch}, by branch {patch.branch} at {patch.snapshot}"


def print_entry(entry: "Entry", output: Format) -> None:
    """What an entry of the log did."""
    from headrace.read.log_entries import moves

    if output is Format.JSON:
        print_json(entry.to_json())
    else:
        print_fields(
            {"entry": entry.number, "kind": entry.kind.value, "moves": moves(entry.moves), "message": entry.message}
        )
