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
        if positions := handle.output_positions():
            about = (
                (name, at.published_epoch, at.unpublished, None if at.parked is None else at.parked.describe())
                for name, at in positions.items()
            )
            print_table(["output", "readers see epoch", "behind main", "parked"], about, "outputs")


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
    from headrace.read.snapshots.progress import StoredProgress, watermarks_of
    from headrace_snapshots.format.output_view import come_to, outputs_of

    handle = handle_of(pipeline, root)
    manifest = handle.show(snapshot)
    if output is Format.JSON:
        print_json(manifest.to_json())
        return
    own = ("snapshot_id", "pipeline", "branch", "epoch", "parent", "generation", "created_at")
    clocks = {name: value for name, value in manifest.progress.items() if name not in ("inputs", "outputs")}
    progress = StoredProgress.of(manifest)
    if progress.held_to is not None:
        clocks["held_to"] = f"watermark {render(progress.held_to.watermark)} of main"
    if holder := progress.held_back_by:
        clocks["held_back_by"] = ", ".join(f"{name} {value}" for name, value in holder.to_json().items() if value)
    patched = {} if manifest.patch is None else {"newest patch": _patched(manifest.patch)}
    print_fields({name: getattr(manifest, name) for name in own} | clocks | patched, "snapshot")
    if names := outputs_of(manifest):
        positions, chains = handle.output_positions(), watermarks_of(manifest).chains
        about = (
            (
                name,
                come_to(manifest, name),
                render(chains[name][-1]) if chains[name] else None,
                *((None, None) if (at := positions.get(name)) is None else (at.published_epoch, at.unpublished)),
                None if (parked := progress.parked.get(name)) is None else parked.describe(),
            )
            for name in names
        )
        columns = ["output", "is at epoch", "watermark", "readers see epoch", "behind main", "parked"]
        print_table(columns, about, "outputs")
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
    """Publish a snapshot whose audit failed: a person's decision, recorded with its reason.

    Of one output (shop.hourly), or of all that are behind it (shop). Readers who see a newer one stay there; a rollback
    to the snapshot takes them back to it.
    """
    from headrace.cli.catalog_names import handle_and_output
    from headrace.cli.display.due import say_what_is_due
    from headrace.runs.publishing.publish import STAY

    handle, named = handle_and_output(pipeline, root)
    entry = handle.release(snapshot, message=message, output=named)
    print_entry(entry, output)
    if not entry.moves:
        notice(STAY)
        return
    notice(f"In Airflow the next run of the process DAG of {handle.name} announces this to DAGs downstream")
    say_what_is_due(handle, pipeline, root, output)


@command("headrace publish delays.py --root file:///tmp/hr")
def publish(
    pipeline: PipelineArgument,
    *,
    root: Root,
    output: Output = Format.TEXT,
) -> None:
    """Publish of main what its stored audits found good, of one output (shop.hourly) or of all. It audits nothing."""
    from headrace.cli.catalog_names import handle_and_output
    from headrace.cli.display.run import print_ending

    handle, named = handle_and_output(pipeline, root)
    print_ending(handle.publish(named), pipeline, root, output, handle)


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
    reader: Annotated[
        bool, Option(name="--reader", help="NAME is a pipeline that read this one, and is gone: keep nothing for it.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Drop a branch or a tag, and say which still stand. Its snapshots stay in the store."""
    from headrace.cli.catalog_names import handle_of

    if reader:
        ended = handle_of(pipeline, root).drop_reader(name)
        if output is Format.JSON:
            print_json({"readers": ended})
        else:
            print_fields({"nothing is kept any more for": ", ".join(ended)})
        return
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
