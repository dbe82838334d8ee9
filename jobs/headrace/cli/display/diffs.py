"""What a difference between two snapshots looks like in a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.display.output import notice, print_fields, print_table
from headrace_snapshots.format.table_names import IDS, UNNAMED

if TYPE_CHECKING:
    from headrace.read.diff.differences import InputDiff, OutputDiff, Pair, SnapshotDiff, SnapshotName
    from headrace.read.diff.row_changes import RowChange, RowCounts
    from headrace.read.diff.table_comparison import TableComparison
    from headrace.runs.delivering.checking import SinkCheck

_NAMED_FILES = 3


def print_diff(diff: "SnapshotDiff") -> None:
    """What differs; what is the same in both is left out, but for numbers of rows."""
    names = {"before": diff.snapshots.before, "after": diff.snapshots.after, "common ancestor": diff.ancestor}
    print_fields({side: _named(name) for side, name in names.items()}, diff.pipeline)
    if table_rows := [*_said(diff)]:
        print_table(["", "before", "after"], table_rows)
    if inputs := [*_inputs(diff.inputs)]:
        print_table(["input", "files", "number", "such as"], inputs)
    tables = {**{stage.table: stage.state for stage in diff.stages}, IDS: diff.ids}
    print_output(diff.output, {name: rows for name, rows in tables.items() if name != IDS or rows.before or rows.after})


def print_comparison(comparison: "TableComparison", table: str) -> None:
    """What a table has that readers do not see, and the other way round."""
    print_fields(
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
    notice("They are equal" if comparison.is_equal else "They differ")


def print_check(check: "SinkCheck") -> None:
    """What a sink holds beside what was delivered to it."""
    notice(check.describe())
    if check.comparison is not None:
        _print_sides(check.comparison)


def _print_sides(comparison: "TableComparison") -> None:
    if comparison.first:
        print_table(
            ["readers see", "the table has"], [(_side(row, "ours"), _side(row, "theirs")) for row in comparison.first]
        )


def _side(row: "Mapping[str, Any]", side: str) -> str:
    """A row as one of the two has it; how often, where changes were summed."""
    times = row.get(f"{side}_times", 1)
    if side == "theirs" and row.get("overdrawn"):
        return f"{times} x {row['overdrawn']}"
    return f"{times} x {row[side]}" if times > 1 else str(row[side] or "-")


def print_output(output: "OutputDiff", tables: "Mapping[str, RowCounts] | None" = None) -> None:
    """What readers would see change, below how many rows of other ``tables`` would."""
    counts = [_counts(name, rows) for name, rows in {**(tables or {}), UNNAMED.current: output.rows}.items()]
    print_table(["rows of", "before", "after", "added", "removed", "changed", "reissued"], counts)
    columns = output.columns
    if columns.only_before or columns.only_after:
        print_fields({"columns only before": _columns(columns.only_before), "only after": _columns(columns.only_after)})
    if not output.is_comparable:
        notice("The two snapshots have different keys, so their rows of current cannot be compared")
    if output.first:
        _print_rows(output.first)
    notice(f"{len(output.first):,} of {output.rows.differing:,} rows that readers see change")


def _said(diff: "SnapshotDiff") -> Iterator[tuple[str, Any, Any]]:
    """Pairs that are not the same."""
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


def _inputs(inputs: "Mapping[str, InputDiff]") -> Iterator[tuple[str, str, int, str]]:
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
    values = [name for name in _sides(rows[0])[0] if name not in _OF_A_PANE]
    table = [[row.kind.value, *row.key.values(), *(_value(row, name) for name in values)] for row in rows]
    print_table(["", *keys, *values], table)


_OF_A_PANE = {"pane_time", "pane_index", "nonspeculative_index", "is_first", "is_last", "epoch"}
"""Of the columns that every pane has, those that are not shown."""


def _value(row: "RowChange", name: str) -> Any:
    values = [side[name] for side in _sides(row)]
    return values[0] if values[0] == values[-1] else f"{values[0]} → {values[-1]}"


def _sides(row: "RowChange") -> list[Mapping[str, Any]]:
    return [side for side in (row.before, row.after) if side is not None]


def _named(name: "SnapshotName | None") -> str:
    if name is None:
        return "none"
    return f"{name.snapshot} (epoch {name.epoch}, {name.branch or 'not kept'})"


def _counts(name: str, rows: "RowCounts") -> tuple[str, int, int, int, int, int, int]:
    return name, rows.before, rows.after, rows.added, rows.removed, rows.changed, rows.reissued


def _columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in columns.items()) or "-"
