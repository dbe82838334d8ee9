"""The commands that process: run, backfill, recover, deliver, replay-late, replay-rejected."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from click import BadParameter
from click.exceptions import Exit

from headrace.cli.app import (
    EXIT_DONE,
    FAILED_CASES,
    AtOption,
    FormatOption,
    Option,
    PipelineArgument,
    RootOption,
    SnapshotArgument,
    command,
    given_options,
)
from headrace.cli.output import Format, print_fields, print_if_json, print_json, print_notice, print_table
from headrace_snapshots.names import PUBLISHED

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle
    from headrace.runs.dropped_records import LandedLate, LandedRejected


@command("headrace run delays.py --root file:///tmp/hr --executor local", options="run", next_parameter="dry_run")
def run(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    dry_run: Annotated[
        bool, Option(help="Do nothing; print what the run would do, stage by stage, from which offsets to which.")
    ] = False,
    output: FormatOption = Format.TEXT,
    **options: Any,
) -> None:
    """Process what has landed, audit it, publish it. Or replay it on a branch of its own."""
    from headrace.cli.deployments import handle_to_run
    from headrace.cli.display import print_dry_run, print_ending, progress_listener

    handle = handle_to_run(pipeline, root, create=options.pop("create"))
    if dry_run:
        print_dry_run(handle.run(**given_options(options), dry_run=True), output)
        return
    with progress_listener() as listener:
        result = handle.run(**given_options(options), listener=listener)
    print_ending(result, pipeline, root, output, handle)


@command(
    "headrace backfill delays.py --from 2026-01-05 --to 2026-01-07 --root file:///tmp/hr --executor local",
    options="backfill",
    next_parameter="dry_run",
)
def backfill(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    dry_run: Annotated[bool, Option(help="Do nothing; print what the backfill would do, stage by stage.")] = False,
    output: FormatOption = Format.TEXT,
    **options: Any,
) -> None:
    """Read input again into a branch with the pipeline as it is now, audit it, and with --promote let readers see it.

    For a range of event time the branch starts from the newest published snapshot taken before any data of the first
    affected window was read. It reads what came after that snapshot. Main and its readers stay undisturbed. Without
    --promote the branch stays beside them for you to look at; the same command with --branch continues it.

    For one output (shop.daily), only that output and those computed from it are computed. --promote lets main adopt it.
    With --patch it is computed with what it reads, late records count, and main gets one more epoch with its rows.
    """
    from headrace.cli.display import run_backfill

    run_backfill(pipeline, root, output, dry_run=dry_run, **options)


@command(
    "headrace recover delays.py 3f0c9a7be2d14c55 --root file:///tmp/hr --executor local",
    options="recover",
    next_parameter="dry_run",
)
def recover(
    pipeline: PipelineArgument,
    snapshot: SnapshotArgument,
    *,
    root: RootOption,
    dry_run: Annotated[
        bool,
        Option(
            help="Do nothing; print what the recovery would do, stage by stage; with --with-readers, what each gives "
            "up, and which cannot and why."
        ),
    ] = False,
    output: FormatOption = Format.TEXT,
    **options: Any,
) -> None:
    """Move main back to a snapshot, read everything after it again, audit it, publish it.

    If readers see something newer than the snapshot, they go back too, until the new results are published.

    With --with-readers, the readers of this pipeline go back, too, and their readers; their next runs continue from
    there. If the command is killed, run it again: it continues. Readers under other roots are known by the objects that
    they put under this root, or if --reader-root names their root; the command says where it has looked.
    """
    from headrace.cli.deployments import handle_of
    from headrace.cli.display import print_dry_run, print_ending, progress_listener
    from headrace.runs.options import options_of_method

    handle = handle_of(pipeline, root)
    options_given = given_options(options)
    if ("leave" in options_given or "reader_roots" in options_given) and not options_given["with_readers"]:
        raise BadParameter("--leave and --reader-root are about readers: give --with-readers as well")
    if dry_run and not options_given["with_readers"]:
        print_dry_run(handle.recover(snapshot, **options_given, dry_run=True), output)
        return
    if dry_run:
        of_cut = {option.name for option in options_of_method("recovery_cut")}
        cut = handle.recovery_cut(snapshot, **{name: value for name, value in options_given.items() if name in of_cut})
        if not print_if_json(cut, output):
            print_table(["pipeline", "from", "to", "what"], ([*row.values()] for row in cut.rows()))
            for limit in cut.searched.limits:
                print_notice(limit)
        return
    with progress_listener() as listener:
        result = handle.recover(snapshot, **options_given, listener=listener)
    print_ending(result, pipeline, root, output, handle)


@command("headrace replay-late delays.py --root file:///tmp/hr")
def replay_late(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    to: Annotated[
        str | None,
        Option(
            help="Landing prefix: a path below the root, or a URI; by default the source's prefix, below ROOT/late.",
        ),
    ] = None,
    at: AtOption = PUBLISHED,
    output: FormatOption = Format.TEXT,
) -> None:
    """Land late records again, as files of the source's format; each record lands only once."""
    from headrace.cli.deployments import handle_and_output

    handle, of_output = handle_and_output(pipeline, root)
    landing = handle.replay_late(output=of_output, to=to, at=at)
    next_run = (
        "The next run reads these copies, and under the same watermark they are late again. A backfill or batch "
        "reads the original files and ignores the copies, so nothing counts twice"
    )
    _print_landed(landing, f"late records at {at}", output, next_run, partial(_batch_of, handle, pipeline, of_output))


@command("headrace replay-rejected delays.py --root file:///tmp/hr")
def replay_rejected(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    of: Annotated[
        str | None, Option(name="--input", help="Land only dead letters of this input; by default of all.")
    ] = None,
    to: Annotated[
        str | None,
        Option(
            help="Landing prefix: a path below the root, or a URI; by default each input's prefix, below "
            "ROOT/rejected.",
        ),
    ] = None,
    at: AtOption = PUBLISHED,
    output: FormatOption = Format.TEXT,
) -> None:
    """Land dead letters again as they were, for a pipeline that can read them now; each record lands only once."""
    from headrace.cli.deployments import handle_and_output

    handle, of_output = handle_and_output(pipeline, root)
    landing = handle.replay_rejected(output=of_output, input=of, to=to, at=at)
    sweep = " with --full-sweep (the copies' names sort before the newest files)" if landing.needs_full_sweep else ""
    next_run = (
        f"The next run{sweep} reads these copies; {_describe_late_records(landing.late, landing.records)}. A backfill, "
        "batch or rollback reads the original files and ignores the copies, so nothing counts twice"
    )
    _print_landed(landing, f"dead letters at {at}", output, next_run, partial(_batch_of, handle, pipeline, of_output))


def _batch_of(handle: "PipelineHandle", reference: str, output: str | None, root: str) -> str:
    """The command that computes what has landed below ``root``, of one ``output`` without the others."""
    whole = reference if output is None else reference.removesuffix(f".{output}")
    others = [] if output is None else [other for other in handle.outputs if other != output]
    return " ".join(
        ["headrace run", whole, "--root", root, "--mode batch", *(f"--without {other}" for other in others)]
    )


_NOTHING_LANDED = "Nothing has landed now, so the next run has nothing more to read"


def _print_landed(
    landing: "LandedLate | LandedRejected", title: str, output: Format, next_run: str, batch: Callable[[str], str]
) -> None:
    """Print what landed, how many records did not land and why, and what follows. Where copies landed in the source,
    that is ``next_run``; below a root of their own, it is ``batch``.
    """
    fields = landing.to_json()
    if output is Format.JSON:
        print_json(fields)
        return
    targets = {f"{name} to": uri for name, uri in fields.pop("targets", {}).items()}
    left, default_root = fields.pop("left"), fields.pop("beside")
    print_fields({**targets, **fields}, title)
    for why, count in left.items():
        print_notice(f"{count:,} cannot land: {why}")
    if landing.lands_in_source:
        print_notice(next_run if landing.records else _NOTHING_LANDED)
    elif default_root is not None and (landing.records or landing.already_landed):
        print_notice(f"Their part of the results: {batch(default_root)}")


def _describe_late_records(late: int | None, records: int) -> str:
    """What becomes of the windows of so many ``records``, of which so many are ``late``."""
    if late is None:
        return "records of windows that have expired by then are late"
    if not late:
        return "behind the watermark of main none of them is late"
    how_many = "all" if late == records else f"{late:,}"
    return f"behind the watermark of main {how_many} of them are late, since their windows have expired"


@command("headrace deliver sales.py --root file:///tmp/hr --sink reports.sales")
def deliver(
    pipeline: PipelineArgument,
    *,
    root: RootOption,
    sink: Annotated[list[str] | None, Option(help="Only this sink. Repeatable.")] = None,
    take_over: Annotated[bool, Option(help="Replace what another root or pipeline has delivered there.")] = False,
    refill: Annotated[bool, Option(help="Replace all that is there, whatever others have done to it.")] = False,
    check: Annotated[bool, Option(help="Compare what sinks hold with what was delivered; change nothing.")] = False,
    dry_run: Annotated[bool, Option(help="Do nothing; print what each sink would hold. No sink is asked.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make the sinks of a pipeline, or of one output (shop.py:shop.hourly), hold what readers see.

    Each sink says which published version it holds, and gets the changes since then. So the same command follows a
    publish, a release, a rollback, a promotion and a patch; called again, it has nothing to do. If one sink fails, it
    keeps its rows, and the other sinks get their changes.

    Not every kind of sink notices that others have changed rows: --check compares all rows, and ends with 1 if they
    differ; --refill replaces them in one step.
    """
    from headrace.cli.deployments import existing_root
    from headrace.cli.display import print_check, print_dry_run
    from headrace.pipeline.loading.registry import output_named, resolve_pipeline
    from headrace.runs.client.handle import PipelineHandle
    from headrace_snapshots.catalog import Catalog
    from headrace_snapshots.store import open_store

    reference, output_name = output_named(pipeline)
    definition = resolve_pipeline(reference)
    handle = PipelineHandle(Catalog(open_store(existing_root(root)), definition.name), definition)
    if check:
        if take_over or refill:
            raise BadParameter("--check changes nothing: leave out --take-over and --refill")
        checks = handle.check_sinks(output=output_name or None, sinks=sink or ())
        if output is Format.JSON:
            print_json([one.to_json() for one in checks])
        else:
            for one in checks:
                print_check(one)
        raise Exit(FAILED_CASES if any(one.is_right is False for one in checks) else EXIT_DONE)
    if dry_run:
        chosen_output, sinks = output_name or None, sink or ()
        dry_run_result = handle.deliver(
            output=chosen_output, sinks=sinks, take_over=take_over, refill=refill, dry_run=True
        )
        print_dry_run(dry_run_result, output)
        return
    deliveries = handle.deliver(
        output=output_name or None,
        sinks=sink or (),
        take_over=take_over,
        refill=refill,
        listener=None if output is Format.JSON else lambda delivery: print_notice(delivery.describe()),
    )
    if output is Format.JSON:
        print_json([delivery.to_json() for delivery in deliveries])
    elif not deliveries:
        print_notice(f"{pipeline} has no sinks")
