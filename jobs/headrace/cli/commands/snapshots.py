"""The commands over the catalog: log, show, release, tag, drop; and those that keep storage in order: expire, fsck."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from click import BadParameter
from click.exceptions import Exit

from headrace.cli.app import (
    Argument,
    FormatOption,
    Option,
    PipelineArgument,
    RefArgument,
    RootOption,
    SnapshotArgument,
    command,
    complete_snapshot,
)
from headrace.cli.output import Format, print_fields, print_if_json, print_json, print_lines, print_notice, print_table
from headrace.errors import RestoreError
from headrace_snapshots.names import MAIN

if TYPE_CHECKING:
    from headrace_snapshots.expiry import Expired, Total
    from headrace_snapshots.fsck import FsckReport
    from headrace_snapshots.gc_roots import Keep, ReaderBehind
    from headrace_snapshots.log import Entry


@command("headrace log delays.py --root file:///tmp/hr --limit 5")
def log(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    limit: Annotated[int, Option(min=1, help="Entries to print.")] = 20,
    before: Annotated[int | None, Option(min=0, help="Only entries with a lower number.")] = None,
    graph: Annotated[
        bool,
        Option(
            help="Draw each snapshot with its parent, without claims and publishes. o: no branch or tag leads there "
            "any more.",
        ),
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print the catalog log, newest entry first: commits, publishes, rollbacks. Or draw its snapshots as a graph."""
    from headrace.cli.deployments import handle_of
    from headrace.read.snapshots.catalog_log import COLUMNS

    handle = handle_of(pipeline, root)
    if graph:
        graph_shown = handle.graph(limit=limit, before=before)
        if not print_if_json(graph_shown, output):
            print_lines(graph_shown.lines())
        return
    entries = handle.log(limit=limit, before=before)
    if not print_if_json(entries, output):
        print_table(COLUMNS, entries.rows())
        if positions := handle.output_positions():
            output_rows = (
                (
                    name,
                    position.published_epoch,
                    position.unpublished,
                    None if position.parked is None else position.parked.describe(),
                )
                for name, position in positions.items()
            )
            print_table(["output", "readers see epoch", "behind main", "parked"], output_rows, "outputs")


@command("headrace show delays.py main --root file:///tmp/hr")
def show(
    pipeline: PipelineArgument,
    snapshot: SnapshotArgument,
    *,
    root: RootOption,
    output: FormatOption = Format.TEXT,
) -> None:
    """Print a snapshot: clocks, counts, tables, timings, storage requests."""
    from headrace.cli.deployments import handle_of
    from headrace.model.time import render
    from headrace.read.snapshots.progress import StoredProgress, watermarks_of
    from headrace_snapshots.format.output_view import come_to, outputs_of

    handle = handle_of(pipeline, root)
    manifest = handle.show(snapshot)
    if print_if_json(manifest, output):
        return
    own = ("snapshot_id", "pipeline", "branch", "epoch", "parent", "generation", "created_at")
    clocks = {name: value for name, value in manifest.progress.items() if name not in ("inputs", "outputs")}
    progress = StoredProgress.from_manifest(manifest)
    if progress.held_to is not None:
        clocks["held_to"] = f"watermark {render(progress.held_to.watermark)} of main"
    if holder := progress.held_back_by:
        clocks["held_back_by"] = ", ".join(f"{name} {value}" for name, value in holder.to_json().items() if value)
    if (patch := manifest.patch) is not None:
        clocks["newest patch"] = f"epoch {patch.epoch}, by branch {patch.branch} at {patch.snapshot}"
    print_fields({name: getattr(manifest, name) for name in own} | clocks, "snapshot")
    if names := outputs_of(manifest):
        positions, chains = handle.output_positions(), watermarks_of(manifest).chains
        output_rows = (
            (
                name,
                come_to(manifest, name),
                render(chains[name][-1]) if chains[name] else None,
                *(
                    (None, None)
                    if (position := positions.get(name)) is None
                    else (position.published_epoch, position.unpublished)
                ),
                None if (parked_chain := progress.parked.get(name)) is None else parked_chain.describe(),
            )
            for name in names
        )
        columns = ["output", "is at epoch", "watermark", "readers see epoch", "behind main", "parked"]
        print_table(columns, output_rows, "outputs")
    table_rows = [
        (name, "layers", len(layers), sum(layer.rows for layer in layers)) for name, layers in manifest.tables.items()
    ]
    table_rows += [
        (name, f"layers being merged, {merge.parts_done} of {merge.parts} parts done", len(merge.layers), merge.rows)
        for name, merges in manifest.merges.items()
        for merge in merges
    ]
    table_rows += [(name, "files", log.files, log.rows) for name, log in manifest.logs.items()]
    print_table(["table", "", "number", "rows"], table_rows, "tables")
    print_fields(manifest.counts, "counts of this epoch")
    print_fields({**manifest.timings, **{f"{kind} requests": n for kind, n in manifest.requests.items()}}, "costs")


@command("headrace release delays.py main --root file:///tmp/hr --message 'checked by hand: the strike of May'")
def release(
    pipeline: PipelineArgument,
    snapshot: SnapshotArgument,
    *,
    root: RootOption,
    message: Annotated[str, Option(help="Who decided it, and why; kept in the log.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Publish a snapshot whose audit failed: a person's decision, recorded with its reason.

    With an output (shop.hourly) it is released alone; without (shop), all outputs that are behind the snapshot are.
    Readers who see a newer one stay there; a rollback to the snapshot takes them back to it.
    """
    from headrace.cli.deployments import handle_and_output, say_what_is_due
    from headrace.runs.publishing.publish import STAY

    handle, output_name = handle_and_output(pipeline, root)
    entry = handle.release(snapshot, message=message, output=output_name)
    print_entry(entry, output)
    if not entry.moves:
        print_notice(STAY)
        return
    print_notice(f"In Airflow the next run of the process DAG of {handle.name} announces this to DAGs downstream")
    say_what_is_due(handle, pipeline, root, output)


@command("headrace publish delays.py --root file:///tmp/hr")
def publish(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    output: FormatOption = Format.TEXT,
) -> None:
    """Publish of main what its stored audits found good, of one output (shop.hourly) or of all. It audits nothing."""
    from headrace.cli.deployments import handle_and_output
    from headrace.cli.display import print_ending

    handle, output_name = handle_and_output(pipeline, root)
    print_ending(handle.publish(output_name), pipeline, root, output, handle)


@command("headrace tag delays.py before-the-change --root file:///tmp/hr")
def tag(
    pipeline: PipelineArgument,
    name: Annotated[str, Argument(metavar="NAME", help="The new tag.")],
    snapshot: Annotated[
        str,
        Argument(metavar="[SNAPSHOT]", help="A snapshot's id, a branch or a tag.", complete=complete_snapshot),
    ] = MAIN,
    *,
    root: RootOption,
    output: FormatOption = Format.TEXT,
) -> None:
    """Give a snapshot a name that stays: to read it, to roll back to it, to replay it."""
    from headrace.cli.deployments import handle_of

    print_entry(handle_of(pipeline, root).tag(name, snapshot), output)


@command("headrace drop delays.py before-the-change --root file:///tmp/hr")
def drop(
    pipeline: PipelineArgument,
    name: RefArgument,
    *,
    root: RootOption,
    message: Annotated[str, Option(help="Why; kept in the log.")] = "",
    reader: Annotated[
        bool, Option(name="--reader", help="NAME is a reader of this pipeline that is gone: keep nothing for it.")
    ] = False,
    reader_root: Annotated[
        str | None,
        Option(help="With --reader: the root below which it was, where readers of that name are below several."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Drop a branch or a tag, and say which still stand. Its snapshots stay in the store."""
    from headrace.cli.deployments import handle_of

    if reader_root is not None and not reader:
        raise BadParameter("--reader-root is about a reader: give --reader as well")
    if reader:
        dropped_readers = handle_of(pipeline, root).drop_reader(name, root=reader_root)
        if output is Format.JSON:
            print_json({"readers": dropped_readers})
        else:
            print_fields({"nothing is kept any more for": ", ".join(dropped_readers)})
        return
    entry = handle_of(pipeline, root).drop(name, message=message)
    print_entry(entry, output)
    if output is Format.TEXT:
        standing = {**dict.fromkeys(entry.generations), **entry.refs}
        print_table(["branch or tag", "snapshot"], sorted(standing.items()), "what still stands")


def print_entry(entry: "Entry", output: Format) -> None:
    """What an entry of the log did."""
    from headrace.read.snapshots.catalog_log import moves_text

    if not print_if_json(entry, output):
        print_fields(
            {
                "entry": entry.number,
                "kind": entry.kind.value,
                "moves": moves_text(entry.moves),
                "message": entry.message,
            }
        )


SHOWN_PROBLEMS = 50


@command("headrace expire delays.py --keep-last 100 --keep-for 30d --root file:///tmp/hr")
def expire(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    keep_last: Annotated[int | None, Option(min=1, help="How many published snapshots to keep.")] = None,
    keep_for: Annotated[
        str | None, Option(help="Also keep younger snapshots than this: a length of time, such as 30d.")
    ] = None,
    keep_tags: Annotated[
        bool | None,
        Option(name="--keep-tags/--drop-tags", help="Keep tagged snapshots, or drop the tags of expired ones."),
    ] = None,
    dry_run: Annotated[bool, Option(help="Only say what would happen.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Remove old snapshots, everything that only they need, and what killed runs left behind.

    The next expire deletes what this one marks, so readers have time until then. It keeps branches and tags, all of
    main that is not published, and the newest published snapshots. Options override the pipeline's retention, by
    default the last 100 and all tags. A pipeline known by its name alone needs at least --keep-last.
    """
    from headrace.cli.deployments import handle_of

    handle = handle_of(pipeline, root)
    expiry = handle.expire(keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags, dry_run=dry_run)
    if print_if_json(expiry, output):
        return
    keep = handle.keeping(keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags)
    print_table(["", "kind", "objects", "bytes"], _amount_rows(expiry), "would be" if dry_run else "expired")
    print_fields(_summary_fields(expiry, keep), "kept")
    if expiry.waiting.objects:
        print_notice(
            "waiting objects go once other runs have claimed these branches, or you drop them: "
            f"{', '.join(expiry.writers)}"
        )


@command("headrace fsck delays.py --deep --root file:///tmp/hr")
def fsck(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    deep: Annotated[bool, Option(help="Read data files too, and compare their checksums.")] = False,
    repair: Annotated[bool, Option(help="Restore what the whole objects allow; move no branch.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Check that everything is there that snapshots, readers and runs need; say what is damaged, and what to do."""
    from headrace.cli.deployments import handle_of

    report = handle_of(pipeline, root).fsck(deep=deep, repair=repair)
    if not print_if_json(report, output):
        _print_checked(report)
    if report.damage:
        raise Exit(RestoreError.exit_code)


def _amount_rows(expiry: "Expired") -> Iterator[tuple[str, str, int, int]]:
    for name, total in {"deleted": expiry.swept, "marked": expiry.marked, "waiting": expiry.waiting}.items():
        for kind, amount in total.kinds.items():
            yield name, kind, amount.objects, amount.bytes
        yield name, "all", total.objects, total.bytes


def _summary_fields(expiry: "Expired", keep: "Keep") -> dict[str, Any]:
    from headrace.model.time import render_duration, to_duration

    younger = "" if keep.younger is None else f", those younger than {render_duration(to_duration(keep.younger))}"
    fields: dict[str, Any] = {
        "of published snapshots": f"the newest {keep.last:,}{younger}{', what a tag names' if keep.tags else ''}",
        "snapshots": expiry.kept,
        "first epoch of main": expiry.first_epoch,
        "entries of the log deleted": expiry.folded,
    }
    if expiry.tags:
        fields["tags dropped"] = ", ".join(expiry.tags)
    if expiry.fenced:
        fields["branches fenced"] = ", ".join(expiry.fenced)
    if expiry.held_by:
        fields["held back by"] = f"{', '.join(expiry.held_by)}: readers see older snapshots of it than of other outputs"
    if expiry.behind:
        fields["kept for readers that are behind"] = (
            f"{', '.join(map(_describe_reader, expiry.behind))}; who is gone for good: `headrace drop PIPELINE "
            "READER --reader`"
        )
    others = [name for name in expiry.readers if name not in {one.name for one in expiry.behind}]
    if others:
        fields["kept for what readers keep"] = (
            f"{', '.join(others)}: snapshots of these were computed from it, and can be again; `headrace expire "
            "READER` lets go of what they need no more"
        )
    return fields


def _describe_reader(reader: "ReaderBehind") -> str:
    if reader.since is None:
        return f"{reader.name} (has to take back what is published no more)"
    unread = "1 snapshot" if reader.unread == 1 else f"{reader.unread:,} snapshots"
    return f"{reader.name} ({unread} to read, the first of {reader.since})"


def _format_total(total: "Total") -> str:
    return f"{total.objects:,} objects, {total.bytes:,} bytes"


def _print_checked(report: "FsckReport") -> None:
    if report.problems:
        rows = [
            (problem.path, problem.problem, problem.needed_by, "repaired" if problem.is_repaired else problem.remedy)
            for problem in report.problems[:SHOWN_PROBLEMS]
        ]
        print_table(["object", "what is wrong", "needed by", "what to do"], rows)
    fields = {
        "snapshots": report.snapshots,
        "objects": report.objects,
        "bytes": report.bytes,
        "needed by no kept snapshot": f"{report.unreferenced:,} objects, {report.unreferenced_bytes:,} bytes",
        "problems": len(report.damage),
    }
    if report.unknown:
        fields["of no known kind"] = ", ".join(report.unknown)
    if report.collected is not None:
        fields["garbage deleted"] = _format_total(report.collected.swept)
        fields["garbage that waits"] = (
            f"{_format_total(report.collected.waiting)}, for {', '.join(report.collected.writers) or 0}"
        )
    print_fields(fields, "checked")
