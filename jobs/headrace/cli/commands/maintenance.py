"""The commands that keep storage in order: expire, fsck."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from click.exceptions import Exit

from headrace.cli.app import Output, PipelineArgument, Root, command
from headrace.cli.display.output import Format, notice, print_fields, print_json, print_table
from headrace.cli.parameters import Option
from headrace.errors import RestoreError

if TYPE_CHECKING:
    from headrace_snapshots.fsck import FsckReport
    from headrace_snapshots.gc.expiry import Expired, Total
    from headrace_snapshots.gc.gc_roots import Keep, ReaderBehind

SHOWN_PROBLEMS = 50


@command("headrace expire delays.py --keep-last 100 --keep-for 30d --root file:///tmp/hr")
def expire(
    pipeline: PipelineArgument,
    *,
    root: Root,
    keep_last: Annotated[int | None, Option(min=1, help="How many published snapshots to keep.")] = None,
    keep_for: Annotated[
        str | None, Option(help="Also keep younger snapshots than this: a length of time, such as 30d.")
    ] = None,
    keep_tags: Annotated[
        bool | None,
        Option(name="--keep-tags/--drop-tags", help="Keep tagged snapshots, or drop the tags of expired ones."),
    ] = None,
    dry_run: Annotated[bool, Option(help="Only say what would happen.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Remove old snapshots, everything that only they need, and what killed runs left behind.

    The next expire deletes what this one marks, so readers have time until then. It keeps branches and tags, all of
    main that is not published, and the newest published snapshots. Options override the pipeline's retention, by
    default the last 100 and all tags. A pipeline known by its name alone needs at least --keep-last.
    """
    from headrace.cli.catalog_names import handle_of

    handle = handle_of(pipeline, root)
    expired = handle.expire(keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags, dry_run=dry_run)
    if output is Format.JSON:
        print_json(expired.to_json())
        return
    keep = handle.keeping(keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags)
    print_table(["", "kind", "objects", "bytes"], _amounts(expired), "would be" if dry_run else "expired")
    print_fields(_told(expired, keep), "kept")
    if expired.waiting.objects:
        notice(
            "waiting objects go once other runs have claimed these branches, or you drop them: "
            f"{', '.join(expired.writers)}"
        )


@command("headrace fsck delays.py --deep --root file:///tmp/hr")
def fsck(
    pipeline: PipelineArgument,
    *,
    root: Root,
    deep: Annotated[bool, Option(help="Read data files too, and compare their checksums.")] = False,
    repair: Annotated[bool, Option(help="Restore what the whole objects allow; move no branch.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check that everything is there that snapshots, readers and runs need; say what is damaged, and what to do."""
    from headrace.cli.catalog_names import handle_of

    report = handle_of(pipeline, root).fsck(deep=deep, repair=repair)
    if output is Format.JSON:
        print_json(report.to_json())
    else:
        _print_checked(report)
    if report.damage:
        raise Exit(RestoreError.exit_code)


def _amounts(expired: "Expired") -> Iterator[tuple[str, str, int, int]]:
    for name, total in {"deleted": expired.swept, "marked": expired.marked, "waiting": expired.waiting}.items():
        for kind, amount in total.kinds.items():
            yield name, kind, amount.objects, amount.bytes
        yield name, "all", total.objects, total.bytes


def _told(expired: "Expired", keep: "Keep") -> dict[str, Any]:
    from headrace.model.time import duration, render_duration

    younger = "" if keep.younger is None else f", those younger than {render_duration(duration(keep.younger))}"
    fields: dict[str, Any] = {
        "of published snapshots": f"the newest {keep.last:,}{younger}{', what a tag names' if keep.tags else ''}",
        "snapshots": expired.kept,
        "first epoch of main": expired.first_epoch,
        "entries of the log deleted": expired.folded,
    }
    if expired.tags:
        fields["tags dropped"] = ", ".join(expired.tags)
    if expired.fenced:
        fields["branches fenced"] = ", ".join(expired.fenced)
    if expired.held_by:
        fields["held back by"] = (
            f"{', '.join(expired.held_by)}: readers see older snapshots of it than of other outputs"
        )
    if expired.behind:
        fields["kept for readers that are behind"] = (
            f"{', '.join(map(_behind, expired.behind))}; who is gone for good: `headrace drop PIPELINE READER --reader`"
        )
    others = [name for name in expired.readers if name not in {one.name for one in expired.behind}]
    if others:
        fields["kept for what readers keep"] = (
            f"{', '.join(others)}: snapshots of these were computed from it, and can be again; `headrace expire "
            "READER` lets go of what they need no more"
        )
    return fields


def _behind(reader: "ReaderBehind") -> str:
    if reader.since is None:
        return f"{reader.name} (has to take back what is published no more)"
    unread = "1 snapshot" if reader.unread == 1 else f"{reader.unread:,} snapshots"
    return f"{reader.name} ({unread} to read, the first of {reader.since})"


def _total(total: "Total") -> str:
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
        fields["garbage deleted"] = _total(report.collected.swept)
        fields["garbage that waits"] = (
            f"{_total(report.collected.waiting)}, for {', '.join(report.collected.writers) or 0}"
        )
    print_fields(fields, "checked")
