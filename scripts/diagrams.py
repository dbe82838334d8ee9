"""``make diagrams``: docs/protocol.md, the barrier protocol as its tables say it: diagrams of states, and every row."""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from headrace_snapshots.protocol import barriers, coordinator
from headrace_snapshots.protocol.barriers import TASK_TABLE, PartState
from headrace_snapshots.protocol.coordinator import COORDINATOR_TABLE, RunState, SnapshotState
from headrace_snapshots.protocol.table import Row
from headrace_snapshots.simulation import processes
from headrace_snapshots.simulation.detection import BEHAVIOURS

FILE = Path(__file__).resolve().parents[1] / "docs" / "protocol.md"

_HEAD = """# The barrier protocol

<!-- Made by `make diagrams` of the tables in snapshots/headrace_snapshots/protocol. -->

Tasks and the coordinator of a snapshot are state machines without I/O: events in, effects out. Each is one table,
whose rows are read from the top: the first whose condition holds decides. `headrace simulate` runs them. Epochs of
pipelines do not: there one driver starts the tasks of an epoch and sees all of them end.
"""

_BREAK = "\n\n"
_DETECT = """`headrace simulate --detect PROPERTY` runs processes over any graph, judges every recorded state, and holds
the run to the theorem: the recorded state lies on a run of the same events, what was found in it holds at the end of
the snapshot, and what held at the beginning was found. Where channels are not first in, first out (`--without fifo`)
nobody can rely on any of that.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    parts += _role("A task's part of a snapshot", barriers.__doc__, TASK_TABLE.rows, [PartState.EXPECTED])
    first = [RunState.RUNNING, SnapshotState.BEGUN]
    parts += _role("The coordinator, and a snapshot", coordinator.__doc__, COORDINATOR_TABLE.rows, first)
    parts.append(_detection())
    return "\n".join(parts)


def _role(title: str, theory: str | None, rows: Iterable[Row[Any, Any]], first: Iterable[StrEnum]) -> Iterator[str]:
    rows = list(rows)
    yield f"## {title}\n"
    yield f"```text\n{(theory or '').strip()}\n```\n"
    yield "```mermaid\nstateDiagram-v2"
    yield from (f"    [*] --> {_id(state)}" for state in first)
    yield from _arrows(rows)
    yield "```\n"
    yield "| in state | on | when | then | does |\n|---|---|---|---|---|"
    yield from (_line(row) for row in rows)
    yield ""
    yield from _glossary(rows)


def _detection() -> str:
    theory = f"```text\n{(processes.__doc__ or '').strip()}\n```\n"
    kinds = [
        f"- **{kind}**: {' '.join((inspect.getdoc(doing) or '').partition(_BREAK)[0].split())}"
        for kind, doing in BEHAVIOURS.items()
    ]
    return "\n".join(["## Stable properties\n", theory, _DETECT, *kinds, ""])


def _arrows(rows: Iterable[Row[Any, Any]]) -> Iterator[str]:
    """The rows that lead from one state to another; those with the same ends are one arrow."""
    labels: dict[tuple[StrEnum, StrEnum], list[str]] = defaultdict(list)
    for row in rows:
        for state in row.states:
            if row.then is not None and row.then is not state:
                label = row.event.value + (f" [{_words(row.when)}]" if row.when else "")
                if label not in labels[state, row.then]:
                    labels[state, row.then].append(label)
    for (start, end), events in labels.items():
        yield f"    {_id(start)} --> {_id(end)}: {', '.join(events)}"


def _line(row: Row[Any, Any]) -> str:
    states = ", ".join(state.value for state in row.states)
    when = _words(row.when) if row.when else ""
    then = row.then.value if row.then else "(stays)"
    return f"| {states} | {row.event.value} | {when} | {then} | {', '.join(map(_words, row.do))} |"


def _glossary(rows: Iterable[Row[Any, Any]]) -> Iterator[str]:
    """What conditions and actions mean, each once."""
    functions = {f: None for row in rows for f in ([row.when] if row.when else []) + [*row.do]}
    yield from (f"- *{_words(each)}*: {inspect.getdoc(each)}" for each in functions)
    yield ""


def _words(function: Any) -> str:
    return str(function.__name__).replace("_", " ")


def _id(state: StrEnum) -> str:
    return state.value.replace(" ", "_")


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
