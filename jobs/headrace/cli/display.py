"""What a terminal shows while a run lasts, how it ended and how to go on, and what a difference looks like."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.cli import output as cli_output
from headrace.cli.app import given_options
from headrace.cli.deployments import STARTED_BY, handle_to_run, say_what_is_due
from headrace.errors import HeadraceError
from headrace.model.accumulation import FIRING_COLUMNS
from headrace.pipeline.loading.registry import output_named
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.reporting.listener import LineListener, Listener, Where, number_of, result_lines, wrap_listener
from headrace.runs.reporting.results import RunResult, to_json
from headrace.this_process import escape_invisible, in_one_line
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import IDS, UNNAMED, Manifest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from headrace.read.diff.comparison import InputDiff, OutputDiff, Pair, SnapshotDiff, SnapshotName
    from headrace.read.diff.layered_tables import RowChange, RowCounts
    from headrace.read.diff.target_comparison import TableComparison
    from headrace.runs.delivering.checking import SinkCheck
    from headrace.runs.plan import DryRun


class Bar:
    """A listener of a run in a terminal: a bar of landed files with epochs, rows and rate, and lines above it. The rate
    is that of all rows since the first epoch began.
    """

    def __init__(self, bar: "Progress", clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bar = bar
        self._task = bar.add_task("looking for new files", total=None, figures="")
        self._lines = LineListener(self._print_line)
        self._began: float | None = None
        self._epochs = self._rows = 0

    @classmethod
    @contextmanager
    def show_on_console(
        cls, console: "Console | None" = None, clock: Callable[[], float] = monotonic
    ) -> Iterator[Self]:
        """A bar on ``console``, by default stderr, until the block ends. The rate goes by the seconds of ``clock``."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("files  {task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console or Console(stderr=True, highlight=False)) as bar:
            yield cls(bar, clock)

    def noted(self, what: str) -> None:
        """What the run is doing now stands before the bar."""
        self._bar.update(self._task, description=in_one_line(what))

    def planned(self, files: int) -> None:
        """``files`` new files were found."""
        self._began = self._began or self._clock()
        self._bar.update(self._task, total=files, completed=0, description=number_of(files, "new file"))

    def committed(self, manifest: Manifest) -> None:
        """An epoch became a snapshot."""
        self._lines.committed(manifest)
        self._epochs += 1
        self._rows += manifest.counts["records"]
        self._bar.update(
            self._task,
            advance=manifest.counts["input_files"],
            description=f"epoch {manifest.epoch}",
            figures=f"{number_of(self._epochs, 'epoch')}, {number_of(self._rows, 'row')}{self._format_rate()}",
        )

    def warned(self, warning: str) -> None:
        """Something that a person should know."""
        self._lines.warned(warning)

    def _format_rate(self) -> str:
        seconds = 0.0 if self._began is None else self._clock() - self._began
        return f", {self._rows / seconds:,.0f} rows/s" if seconds > 0 else ""

    def _print_line(self, line: str) -> None:
        self._bar.console.print(escape_invisible(line), soft_wrap=True, markup=False, emoji=False)


def run_backfill(
    reference: str,
    root: str,
    output: cli_output.Format,
    *,
    branch: str | None,
    promote: bool,
    patch: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Backfill ``branch`` (None: a new one), print how it ended, and say how to go on where it was stopped. Or print
    what would be done.
    """
    from headrace.runs.client.recording import new_run_id  # with all that runs need, which a comparison does without

    whole, of_output = output_named(reference)
    handle = handle_to_run(whole, root)
    branch_name = f"backfill-{new_run_id(STARTED_BY)}" if branch is None else branch
    options_given = {
        "output": of_output or None,
        "branch": branch_name,
        "promote": promote,
        "patch": patch,
        **given_options(options),
    }
    if dry_run:
        print_dry_run(handle.backfill(**options_given, dry_run=True), output)
        return
    where, executor = Where(reference, root), options["executor"]
    branch_options = ("--branch", branch_name, *(() if executor is None else ("--executor", str(executor))))
    try:
        with progress_listener() as listener:
            result = handle.backfill(**options_given, listener=listener)
    except HeadraceError as error:
        if _has_begun(handle.catalog, branch_name):
            all_options = (*branch_options, *(("--promote",) if promote else ()), *(("--patch",) if patch else ()))
            error.add_note(f"to go on where it stopped: {where.command('backfill', *all_options)}")
        raise
    print_ending(result, whole, root, output, handle if promote else None)
    if result.snapshot is None:
        return
    if patch:
        with cli_output.despite_closed_output():
            cli_output.print_notice(f"branch {branch_name} stays: `headrace drop {handle.name} {branch_name}` drops it")
    elif not promote:
        with cli_output.despite_closed_output():
            cli_output.print_notice(
                f"to compare it with what readers see: {where.command('diff', 'published', branch_name)}"
            )
            cli_output.print_notice(
                f"to make it main and published: {where.command('backfill', *branch_options, '--promote')}"
            )


def _has_begun(catalog: Catalog, branch: str) -> bool:
    """Whether there is such a branch; where nobody can tell, as storage fails, there may be."""
    try:
        return branch in catalog.known_head().generations
    except HeadraceError:
        return True


@contextmanager
def progress_listener() -> Iterator[Listener]:
    """A listener that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield wrap_listener(LineListener(cli_output.print_notice))
        return
    with Bar.show_on_console() as bar:
        yield wrap_listener(bar)


def print_ending(
    result: RunResult, reference: str, root: str, output: cli_output.Format, handle: PipelineHandle | None = None
) -> None:
    """Print how a run of the pipeline that ``reference`` names ended, and what is due then if ``handle`` has it."""
    with cli_output.despite_closed_output():
        if output is cli_output.Format.JSON:
            cli_output.print_json(json.loads(to_json(result)))
        else:
            cli_output.print_lines(result_lines(result, Where(reference, root)))
        if handle is not None and result.epochs and result.published is not None:
            say_what_is_due(handle, reference, root, output)


def print_dry_run(dry_run: "DryRun", output: cli_output.Format) -> None:
    """Print what a run would do: each stage on its line."""
    if cli_output.print_if_json(dry_run, output):
        return
    cli_output.print_lines(dry_run.lines())
    for warning in dry_run.warnings:
        cli_output.print_notice(f"warning: {warning}")


_NAMED_FILES = 3


def print_diff(diff: "SnapshotDiff") -> None:
    """What differs; what is the same in both is left out, but for numbers of rows."""
    names = {"before": diff.snapshots.before, "after": diff.snapshots.after, "common ancestor": diff.ancestor}
    cli_output.print_fields({side: _format_snapshot(name) for side, name in names.items()}, diff.pipeline)
    if table_rows := [*_differing_pairs(diff)]:
        cli_output.print_table(["", "before", "after"], table_rows)
    if inputs := [*_input_rows(diff.inputs)]:
        cli_output.print_table(["input", "files", "number", "such as"], inputs)
    tables = {**{stage.table: stage.state for stage in diff.stages}, IDS: diff.ids}
    print_output(diff.output, {name: rows for name, rows in tables.items() if name != IDS or rows.before or rows.after})


def print_comparison(comparison: "TableComparison", table: str) -> None:
    """What a table has that readers do not see, and the other way round."""
    cli_output.print_fields(
        {
            "rows that readers see": f"{comparison.ours:,}",
            "rows of the table": f"{comparison.theirs:,}",
            "only readers see": f"{comparison.only_ours:,}",
            "only the table has": f"{comparison.only_theirs:,}",
            "with other values": f"{comparison.different:,}",
            "keys that the table has twice": f"{comparison.twice:,}",
            "rows with a text that is no such value": f"{comparison.unreadable:,}",
        },
        f"{comparison.snapshot} and {table}",
    )
    _print_sides(comparison)
    cli_output.print_notice("They are equal" if comparison.is_equal else "They differ")


def print_check(check: "SinkCheck") -> None:
    """What a sink holds beside what was delivered to it."""
    cli_output.print_notice(check.describe())
    if check.comparison is not None:
        _print_sides(check.comparison)


def _print_sides(comparison: "TableComparison") -> None:
    if comparison.first:
        cli_output.print_table(
            ["readers see", "the table has"],
            [(_format_side(row, "ours"), _format_side(row, "theirs")) for row in comparison.first],
        )


def _format_side(row: "Mapping[str, Any]", side: str) -> str:
    """A row as one of the two has it, as JSON prints it; how often, where changes were summed."""
    from headrace.read.shown_values import json_value

    shown_row = row["overdrawn"] if side == "theirs" and row.get("overdrawn") else row[side]
    if not shown_row:
        return "-"
    text, times = json.dumps(json_value(shown_row), ensure_ascii=False), row.get(f"{side}_times", 1)
    return text if times == 1 else f"{times} x {text}"


def print_output(output: "OutputDiff", tables: "Mapping[str, RowCounts] | None" = None) -> None:
    """What readers would see change, below how many rows of other ``tables`` would."""
    figures = ["before", "after", "added", "removed", "changed", "reissued"]
    rows_by_table = {**(tables or {}), UNNAMED.current: output.rows}
    counts = [[name, *(getattr(rows, figure) for figure in figures)] for name, rows in rows_by_table.items()]
    cli_output.print_table(["rows of", *figures], counts)
    columns = output.columns
    if columns.only_before or columns.only_after:
        cli_output.print_fields(
            {
                "columns only before": _format_columns(columns.only_before),
                "only after": _format_columns(columns.only_after),
            }
        )
    if not output.is_comparable:
        cli_output.print_notice(
            "The two snapshots have different keys, or rows with different columns. So their rows of current cannot be "
            "compared: all of one count as removed, and all of the other as added"
        )
    if output.first:
        _print_rows(output.first)
    cli_output.print_notice(f"{len(output.first):,} of {output.rows.differing:,} rows that readers see change")


def _differing_pairs(diff: "SnapshotDiff") -> Iterator[tuple[str, Any, Any]]:
    pairs: dict[str, Pair[str] | Pair[int]] = {"definition": diff.definition, **diff.clocks}
    for number, stage in enumerate(diff.stages, start=1):
        if len(diff.stages) > 1:
            pairs[f"input watermark of stage {number}"] = stage.input_watermark
        pairs[f"output watermark of stage {number}"] = stage.output_watermark
    pairs |= {f"watermark of input {name}": difference.watermark for name, difference in diff.inputs.items()}
    pairs |= {f"rows of {name}": difference.rows for name, difference in diff.logs.items()}
    for name, pair in pairs.items():
        if pair.differs:
            yield name, pair.before, pair.after
    if diff.code:
        yield "own code", "", f"other: {', '.join(diff.code)}"


def _input_rows(inputs: "Mapping[str, InputDiff]") -> Iterator[tuple[str, str, int, str]]:
    for name, difference in inputs.items():
        kinds = {
            "only before": difference.only_before,
            "only after": difference.only_after,
            "with other content": difference.other_content,
        }
        for words, paths in kinds.items():
            if paths:
                yield name, words, len(paths), ", ".join(paths[:_NAMED_FILES])


def _print_rows(rows: "Sequence[RowChange]") -> None:
    """Key and window, and values: the old and the new one where they differ."""
    keys = [*rows[0].key]
    values = [name for name in _row_sides(rows[0])[0] if name not in _UNSHOWN]
    table = [[row.kind.value, *row.key.values(), *(_value_change(row, name) for name in values)] for row in rows]
    cli_output.print_table(["", *keys, *values], table)


_UNSHOWN: Final = {*FIRING_COLUMNS} - {"timing"}
"""Columns that a difference does not show: those of the firing, but for its timing."""


def _value_change(row: "RowChange", name: str) -> Any:
    values = [side[name] for side in _row_sides(row)]
    return values[0] if values[0] == values[-1] else f"{values[0]} → {values[-1]}"


def _row_sides(row: "RowChange") -> list[Mapping[str, Any]]:
    return [side for side in (row.before, row.after) if side is not None]


def _format_snapshot(name: "SnapshotName | None") -> str:
    if name is None:
        return "none"
    return f"{name.snapshot} (epoch {name.epoch}, {name.branch or 'not kept'})"


def _format_columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in columns.items()) or "-"
