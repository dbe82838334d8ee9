"""Commands about snapshots and what led to them: explain, plan, diff, fork, rollback, promote.

``explain`` says what windows wait for, ``plan`` what a run would do. The others compare snapshots, and move in their
history.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from click import BadParameter
from click.exceptions import Exit

from headrace.cli import app
from headrace.cli.commands.snapshots import print_entry
from headrace.cli.output import Format, as_typed, print_fields, print_if_json, print_json, print_lines, print_notice
from headrace_snapshots.names import MAIN, PUBLISHED

if TYPE_CHECKING:
    from headrace.runs.publishing.patch import PatchRehearsal
    from headrace.runs.publishing.promotion import Rehearsal


@app.command("headrace explain delays.py --key JFK --window 2026-01-01T13:00:00Z --root file:///tmp/hr")
def explain(
    pipeline: app.PipelineArgument,
    *,
    root: app.RootOption,
    key: Annotated[
        list[str] | None,
        app.Option(
            help="The key: one --key for each of its columns, in their order, or one JSON object of them. Of joined "
            "rows an object of some of their columns."
        ),
    ] = None,
    window: Annotated[
        str | None,
        app.Option(help="A time in the window, such as its start; by default all known windows of the key."),
    ] = None,
    at: app.AtOption = MAIN,
    stage: app.StageOption = None,
    epochs: Annotated[
        int | None,
        app.Option(help="Look only at panes and late records of this many newest epochs; by default of all."),
    ] = None,
    output: app.FormatOption = Format.TEXT,
) -> None:
    """Say why the windows of a key have fired or not, and what they wait for; and which rows joined ones have met."""
    from headrace.cli.deployments import reader_of

    explanation = reader_of(pipeline, root).explain(key, window=window, stage=stage, at=at, epochs=epochs)
    if not print_if_json(explanation, output):
        print_lines(explanation.lines())


@app.command("headrace plan delays.py --root file:///tmp/hr")
def plan(
    pipeline: app.PipelineArgument,
    *,
    root: app.RootOption,
    at: app.AtOption = MAIN,
    stages: Annotated[
        bool,
        app.Option(help="Print also what a run would do now, stage by stage, as run --dry-run does; it asks sources."),
    ] = False,
    output: app.FormatOption = Format.TEXT,
) -> None:
    """Say what a run would do with the pipeline as it is written now: keep or migrate its state, or refuse; and why.

    It changes nothing. A run keeps the state of an aggregation if neither the aggregation nor its input has changed;
    schedules, executors, descriptions and expectations do not count. It migrates the state if only columns have
    changed: renamed, gone, or new and empty (run --allow-new-aggregates). Any other change needs a replay, by a
    backfill. Where outputs have names, one that has changed is parked, and the others go on.
    """
    from headrace.cli.deployments import handle_and_output

    handle, output_name = handle_and_output(pipeline, root)
    if stages and (output_name is not None or at != MAIN):
        raise BadParameter("--stages is about a run of the whole pipeline on main: leave out the output, and --at")
    plans = handle.plans(at=at)
    if output_name is not None:
        plans = {"": plans[output_name] if output_name in plans else handle[output_name].plan(at=at)}
    elif not plans:
        plans = {"": handle.plan(at=at)}
    if output is Format.JSON:
        plan_json = {name: one.to_json() for name, one in plans.items()}
        if stages:
            run = {"run": handle.run(dry_run=True).to_json()}
            print_json({**plan_json[""], **run} if "" in plan_json else {"outputs": plan_json, **run})
        else:
            print_json(plan_json.get("", plan_json))
        return
    for one in plans.values():
        print_lines(map(as_typed, one.lines()))
    if stages:
        from headrace.cli.display import print_dry_run

        print_dry_run(handle.run(dry_run=True), output)


_SNAPSHOT_HELP = "An id, a branch, a tag, or a time (what readers saw then)."


@app.command("headrace diff delays.py published main --root file:///tmp/hr")
def diff(
    pipeline: app.PipelineArgument,
    before: Annotated[str, app.Argument(metavar="A", help=_SNAPSHOT_HELP, complete=app.complete_snapshot)] = PUBLISHED,
    after: Annotated[
        str | None, app.Argument(metavar="B", help="The other one.", complete=app.complete_snapshot)
    ] = None,
    *,
    root: app.RootOption,
    limit: Annotated[int, app.Option(min=0, help="Rows to print; all are counted.")] = 20,
    against: Annotated[
        str | None,
        app.Option(
            metavar="KIND:TABLE",
            help="A table in place of B: postgres:TABLE, delta:PATH, iceberg:NAMESPACE.TABLE or parquet:PATH.",
        ),
    ] = None,
    connection: Annotated[str | None, app.Option(help="How the table is reached: HEADRACE_CONN_{NAME}.")] = None,
    column: Annotated[
        list[str] | None, app.Option(metavar="OURS=THEIRS", help="What the table calls a column. Repeatable.")
    ] = None,
    without: Annotated[list[str] | None, app.Option(help="A column that is not compared. Repeatable.")] = None,
    tolerance: Annotated[
        float, app.Option(min=0, max=1, help="How much floats may differ, relative to the greater.")
    ] = 0,
    output: app.FormatOption = Format.TEXT,
) -> None:
    """Compare two snapshots: what readers would see change, input, watermarks, state, late rows and dead letters.

    With --against, compare the rows of A (by default what readers see) with those of any table. It ends with 1 if they
    differ.
    """
    from headrace.cli.deployments import handle_and_output, reader_of
    from headrace.cli.display import print_comparison, print_diff

    if against is not None:
        handle, output_name = handle_and_output(pipeline, root)
        comparison = handle.compare_with(
            against,
            connection=connection,
            output=output_name,
            at=before,
            columns=_parse_renames(column or ()),
            without=without or (),
            tolerance=tolerance,
            limit=limit,
        )
        if not print_if_json(comparison, output):
            print_comparison(comparison, against)
        raise Exit(app.EXIT_DONE if comparison.is_equal else app.FAILED_CASES)
    if after is None:
        raise BadParameter("give two snapshots, or a table with --against")
    difference = reader_of(pipeline, root).diff(before, after, limit=limit)
    if not print_if_json(difference, output):
        print_diff(difference)


def _parse_renames(columns: Sequence[str]) -> dict[str, str]:
    renames = dict(name.partition("=")[::2] for name in columns)
    if wrong := [name for name, theirs in renames.items() if not theirs]:
        raise BadParameter(f"--column {wrong[0]}: write OURS=THEIRS, as in window_start=hour")
    return renames


@app.command("headrace fork delays.py before-the-change trial --root file:///tmp/hr")
def fork(
    pipeline: app.PipelineArgument,
    snapshot: Annotated[str, app.Argument(metavar="SNAPSHOT", help=_SNAPSHOT_HELP, complete=app.complete_snapshot)],
    name: Annotated[str, app.Argument(metavar="NAME", help="The new branch.")],
    *,
    root: app.RootOption,
    output: app.FormatOption = Format.TEXT,
) -> None:
    """Make a branch at a snapshot, for runs beside main (headrace run --branch). Readers of main see nothing of it."""
    from headrace.cli.deployments import handle_of

    print_entry(handle_of(pipeline, root).fork(snapshot, name), output)


@app.command(
    "headrace rollback delays.py --to 3f0c9a7be2d14c55 --root file:///tmp/hr --message 'a wrong file'",
    options="rollback",
)
def rollback(
    pipeline: app.PipelineArgument,
    *,
    to: Annotated[
        str,
        app.Option(
            metavar="SNAPSHOT",
            help="An id, a tag, or 'beginning'.",
            complete=app.complete_snapshot,
        ),
    ],
    root: app.RootOption,
    branch: Annotated[str, app.Option(help="The branch to move back.", complete=app.complete_branch)] = MAIN,
    message: Annotated[str, app.Option(help="Why; kept in the log.")] = "rolled back by hand",
    dry_run: Annotated[
        bool,
        app.Option(help="Move nothing; print what would move, patches that would be lost, releases that would end."),
    ] = False,
    output: app.FormatOption = Format.TEXT,
    **options: Any,
) -> None:
    """Move a branch back to a snapshot; 'published' moves with it if it is newer. The next run continues from there.

    Main may also go back to what it was before a promotion. Output patches that came after the snapshot are lost. The
    command names each of them, with the command that makes it again, and the releases that end.
    """
    from headrace.cli.deployments import handle_of, say_what_is_due
    from headrace.read.snapshots.catalog_log import moves_text

    handle = handle_of(pipeline, root)
    given_up = handle.rollback(to=to, branch=branch, dry_run=True, **options)
    if dry_run:
        if not print_if_json(given_up, output):
            print_fields({"moves": moves_text(given_up.moves)})
    else:
        entry = handle.rollback(to=to, branch=branch, message=message, **options)
        print_entry(entry, output)
        say_what_is_due(handle, pipeline, root, output)
    for line in given_up.told:
        print_notice(f"warning: {line}")


@app.command("headrace promote delays.py trial --dry-run --root file:///tmp/hr", options="promote")
def promote(
    pipeline: app.PipelineArgument,
    branch: Annotated[str, app.Argument(metavar="BRANCH", help="A branch.", complete=app.complete_branch)],
    *,
    root: app.RootOption,
    patch: Annotated[
        bool,
        app.Option(help="Replace only rows whose windows have expired on both; main goes on as it is."),
    ] = False,
    dry_run: Annotated[
        bool,
        app.Option(help="Move nothing; print what readers would see change, and what is against the promotion."),
    ] = False,
    limit: Annotated[int, app.Option(min=0, help="Rows that --dry-run prints; all are counted.")] = 20,
    message: Annotated[str, app.Option(help="Who decided it, and why; kept in the log.")] = "",
    output: app.FormatOption = Format.TEXT,
    **options: Any,
) -> None:
    """Make a branch main and published, if its whole audit succeeded and it has read all that main has.

    The branch ends, and a run that writes main is fenced. The old main stays in the store, and in the log. With --patch
    main and the branch both stay, and main gets one more epoch with rows of the branch.

    For one output (shop.daily), main adopts what the branch has of that output and of outputs computed from it.
    """
    from headrace.cli.deployments import handle_and_output
    from headrace.cli.display import print_ending

    handle, of_output = handle_and_output(pipeline, root)
    if not dry_run:
        promoted_as = handle.promote(branch, output=of_output, patch=patch, message=message, **options)
        print_ending(promoted_as, pipeline, root, output, handle)
        print_notice(f"In Airflow the next run of the process DAG of {handle.name} announces this to DAGs downstream")
        return
    rehearsal: Rehearsal | PatchRehearsal
    if patch:
        rehearsal = patch_rehearsal = handle.promote(branch, output=of_output, patch=True, dry_run=True, limit=limit)
        show = partial(_print_patch, patch_rehearsal)
    else:
        rehearsal = promotion_rehearsal = handle.promote(branch, output=of_output, dry_run=True, limit=limit, **options)
        show = partial(_print_diffs, promotion_rehearsal)
    if print_if_json(rehearsal, output):
        return
    print_notice(f"it would {rehearsal.change}")
    show()
    flags = f"{' --patch' if patch else ''}{app.flags_again('promote', options)}"
    command_text = f"headrace promote {pipeline} {branch} --root {root}{flags}"
    for refusal in rehearsal.refusals:
        print_notice(f"the promotion would be refused: {refusal} ({refusal.code})")
    if not rehearsal.refusals:
        print_notice(f"nothing is against the promotion: {command_text}")


def _print_diffs(rehearsal: "Rehearsal") -> None:
    from headrace.cli.display import print_diff

    for output, difference in rehearsal.diffs.items():
        if output:
            print_notice(f"output {output}:")
        print_diff(difference)
    for output in rehearsal.gone:
        print_notice(f"output {output or 'without a name'} is gone: its readers would see nothing any more")


def _print_patch(rehearsal: "PatchRehearsal") -> None:
    from headrace.cli.display import print_output

    print_output(rehearsal.output)
    for reason, number in rehearsal.left.items():
        print_notice(f"{number:,} rows differ and stay as they are: {reason}")
    print_notice(
        "Consumers of `panes` receive a retraction and a late pane for each row; downstream windows that have expired "
        "drop them"
    )
