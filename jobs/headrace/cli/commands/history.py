"""The commands that compare snapshots and move in their history: diff, fork, rollback, promote."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

from headrace.cli.app import Output, PipelineArgument, Root, command
from headrace.cli.commands.snapshots import print_entry
from headrace.cli.completion import complete_branch, complete_snapshot
from headrace.cli.display.output import Format, notice, print_fields, print_json
from headrace.cli.parameters import Argument, Option
from headrace_snapshots.refs import MAIN

if TYPE_CHECKING:
    from headrace.runs.patching.patch import PatchRehearsal
    from headrace.runs.publishing.promotion import Rehearsal

_NAMED = "An id, a branch, a tag, or a time (what readers saw then)."


@command("headrace diff delays.py published main --root file:///tmp/hr")
def diff(
    pipeline: PipelineArgument,
    before: Annotated[str, Argument(metavar="A", help=_NAMED, complete=complete_snapshot)],
    after: Annotated[str, Argument(metavar="B", help="The other one.", complete=complete_snapshot)],
    *,
    root: Root,
    limit: Annotated[int, Option(min=0, help="Rows to print; all are counted.")] = 20,
    output: Output = Format.TEXT,
) -> None:
    """Compare two snapshots: what readers would see change, input, watermarks, state, late rows and dead letters."""
    from headrace.cli.catalog_names import reader_of
    from headrace.cli.display.diffs import print_diff

    difference = reader_of(pipeline, root).diff(before, after, limit=limit)
    if output is Format.JSON:
        print_json(difference.to_json())
    else:
        print_diff(difference)


@command("headrace fork delays.py before-the-change trial --root file:///tmp/hr")
def fork(
    pipeline: PipelineArgument,
    snapshot: Annotated[str, Argument(metavar="SNAPSHOT", help=_NAMED, complete=complete_snapshot)],
    name: Annotated[str, Argument(metavar="NAME", help="The new branch.")],
    *,
    root: Root,
    output: Output = Format.TEXT,
) -> None:
    """Make a branch at a snapshot, for runs beside main (headrace run --branch). Readers of main see nothing of it."""
    from headrace.cli.catalog_names import handle_of

    print_entry(handle_of(pipeline, root).fork(snapshot, name), output)


@command("headrace rollback delays.py --to 3f0c9a7be2d14c55 --root file:///tmp/hr --message 'a wrong file'")
def rollback(
    pipeline: PipelineArgument,
    *,
    to: Annotated[
        str,
        Option(
            metavar="SNAPSHOT",
            help="An id, a tag, or 'beginning'.",
            complete=complete_snapshot,
        ),
    ],
    root: Root,
    branch: Annotated[str, Option(help="The branch to move back.", complete=complete_branch)] = MAIN,
    message: Annotated[str, Option(help="Why; kept in the log.")] = "rolled back by hand",
    dry_run: Annotated[
        bool, Option(help="Move nothing; print what would move, patches that would be lost, releases that would end.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Move a branch back to a snapshot; 'published' moves with it if it is newer. The next run continues from there.

    Main may also go back to what it was before a promotion. Output patches that came after the snapshot are lost. The
    command names each of them, with the command that makes it again, and the releases that end.
    """
    from headrace.cli.catalog_names import handle_of
    from headrace.read.log_entries import moves

    handle = handle_of(pipeline, root)
    given_up = handle.rollback(to=to, branch=branch, dry_run=True)
    if dry_run:
        if output is Format.JSON:
            print_json(given_up.to_json())
        else:
            print_fields({"moves": moves(given_up.moves)})
    else:
        print_entry(handle.rollback(to=to, branch=branch, message=message), output)
    for line in given_up.told:
        notice(f"warning: {line}")


@command("headrace promote delays.py trial --dry-run --root file:///tmp/hr")
def promote(
    pipeline: PipelineArgument,
    branch: Annotated[str, Argument(metavar="BRANCH", help="A branch.", complete=complete_branch)],
    *,
    root: Root,
    patch: Annotated[
        bool,
        Option(help="Replace only rows whose windows have expired on both; main goes on as it is."),
    ] = False,
    dry_run: Annotated[
        bool,
        Option(help="Move nothing; print what readers would see change, and what is against the promotion."),
    ] = False,
    limit: Annotated[int, Option(min=0, help="Rows that --dry-run prints; all are counted.")] = 20,
    message: Annotated[str, Option(help="Who decided it, and why; kept in the log.")] = "",
    output: Output = Format.TEXT,
) -> None:
    """Make a branch main and published, if its whole audit succeeded and it has read all that main has.

    The branch ends, and a run that writes main is fenced. The old main stays in the store, and in the log. With --patch
    main and the branch both stay, and main gets one more epoch with rows of the branch.
    """
    from headrace.cli.catalog_names import handle_of
    from headrace.cli.display.diffs import print_diff
    from headrace.cli.display.run import print_ending

    handle = handle_of(pipeline, root)
    if not dry_run:
        print_ending(handle.promote(branch, patch=patch, message=message), pipeline, root, output)
        notice(f"In Airflow the next run of the process DAG of {handle.name} announces this to DAGs downstream")
        return
    rehearsal: Rehearsal | PatchRehearsal
    if patch:
        rehearsal = patched = handle.promote(branch, patch=True, dry_run=True, limit=limit)
        show = partial(_print_patch, patched)
    else:
        rehearsal = promoted = handle.promote(branch, dry_run=True, limit=limit)
        show = partial(print_diff, promoted.diff)
    if output is Format.JSON:
        print_json(rehearsal.to_json())
        return
    show()
    again = f"headrace promote {pipeline} {branch} --root {root}{' --patch' if patch else ''}"
    for refusal in rehearsal.refusals:
        notice(f"the promotion would be refused: {refusal} ({refusal.code})")
    if not rehearsal.refusals:
        notice(f"nothing is against the promotion: {again}")


def _print_patch(rehearsal: "PatchRehearsal") -> None:
    from headrace.cli.display.diffs import print_output

    print_output(rehearsal.output)
    for reason, number in rehearsal.left.items():
        notice(f"{number:,} rows differ and stay as they are: {reason}")
    notice(
        "Consumers of `panes` receive a retraction and a late pane for each row; downstream windows that have expired "
        "drop them"
    )
