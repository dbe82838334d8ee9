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
    from headrace_snapshots.gc.gc_roots import Keep

SHOWN_PROBLEMS = 50


@command("headrace expire delays.py --keep-last 100 --keep-for 30d --root file:///tmp/hr")
def expire(
    pipeline: PipelineArgument,
    *,
    root: Root,
    keep_last: Annotated[int | None, Option(min=1, help="Keep so many published snapshots.")] = None,
    keep_for: Annotated[str | None, Option(help="Keep younger ones too: a length of time, such as 30d.")] = None,
    keep_tags: Annotated[
        bool | None,
        Option(name="--keep-tags/--drop-tags", help="Keep tagged snapshots, or drop the tags of expired ones."),
    ] = None,
    dry_run: Annotated[bool, Option(help="Only say what would happen.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Let old snapshots go, with all that only they need, and what killed runs left behind.

    The next expire deletes what this one marks: readers have time until then. It keeps branches and tags, all of main
    that is not published, and the newest published snapshots. Options override the pipeline's retention, which is
    the last 100 and all tags unless it says otherwise. A pipeline known by its name alone needs at least --keep-last.
    """
    from headrace.cli.catalog_names import handle_of

    handle = handle_of(pipeline, root)
    found = handle.expire(keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags, dry_run=dry_run)
    if output is Format.JSON:
        print_json(found.to_json())
        return
    keep = handle.keeping(keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags)
    print_table(["", "kind", "objects", "bytes"], _amounts(found), "would be" if dry_run else "expired")
    print_fields(_told(found, keep), "kept")
    if found.waiting.objects:
        notice(f"what waits is deleted once other runs have claimed or dropped: {', '.join(found.writers)}")


@command("headrace fsck delays.py --deep --root file:///tmp/hr")
def fsck(
    pipeline: PipelineArgument,
    *,
    root: Root,
    deep: Annotated[bool, Option(help="Read data files too, and compare their checksums.")] = False,
    repair: Annotated[bool, Option(help="Make again what can be, from what is whole; moves no branch.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check that everything is there that snapshots, readers and runs need; say what is not, and the way out."""
    from headrace.cli.catalog_names import handle_of

    found = handle_of(pipeline, root).fsck(deep=deep, repair=repair)
    if output is Format.JSON:
        print_json(found.to_json())
    else:
        _print_checked(found)
    if found.damage:
        raise Exit(RestoreError.exit_code)


def _amounts(found: "Expired") -> Iterator[tuple[str, str, int, int]]:
    for name, total in {"deleted": found.swept, "marked": found.marked, "waiting": found.waiting}.items():
        for kind, amount in total.kinds.items():
            yield name, kind, amount.objects, amount.bytes
        yield name, "all", total.objects, total.bytes


def _told(found: "Expired", keep: "Keep") -> dict[str, Any]:
    from headrace.model.time import duration, render_duration

    younger = "" if keep.younger is None else f", those younger than {render_duration(duration(keep.younger))}"
    fields: dict[str, Any] = {
        "of what is published": f"the newest {keep.last:,}{younger}{', what a tag names' if keep.tags else ''}",
        "snapshots": found.kept,
        "first epoch of main": found.first_epoch,
        "entries of the log deleted": found.folded,
    }
    if found.tags:
        fields["tags dropped"] = ", ".join(found.tags)
    if found.fenced:
        fields["branches fenced"] = ", ".join(found.fenced)
    return fields


def _total(total: "Total") -> str:
    return f"{total.objects:,} objects, {total.bytes:,} bytes"


def _print_checked(found: "FsckReport") -> None:
    if found.problems:
        rows = [
            (each.path, each.problem, each.needed_by, "repaired" if each.is_repaired else each.remedy)
            for each in found.problems[:SHOWN_PROBLEMS]
        ]
        print_table(["object", "what is wrong", "needed by", "what to do"], rows)
    fields = {
        "snapshots": found.snapshots,
        "objects": found.objects,
        "bytes": found.bytes,
        "named by nothing kept": f"{found.unreferenced:,} objects, {found.unreferenced_bytes:,} bytes",
        "problems": len(found.damage),
    }
    if found.unknown:
        fields["of no known kind"] = ", ".join(found.unknown)
    if found.collected is not None:
        fields["garbage deleted"] = _total(found.collected.swept)
        fields["garbage that waits"] = (
            f"{_total(found.collected.waiting)}, for {', '.join(found.collected.writers) or 0}"
        )
    print_fields(fields, "checked")
