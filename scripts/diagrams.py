"""``make diagrams``: docs/protocol.md, the barrier protocol as its tables say it: every row, and diagrams of states."""

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from headrace_lab.simulation import processes
from headrace_lab.simulation.detection import BEHAVIOURS
from headrace_snapshots.protocol import barriers, coordinator
from headrace_snapshots.protocol.barriers import TASK_TABLE, PartState, Row
from headrace_snapshots.protocol.coordinator import COORDINATOR_TABLE, RunState, SnapshotState
from scripts.state_diagrams import Arrow, Layout, Place, state_diagram

FILE = Path(__file__).resolve().parents[1] / "docs" / "protocol.md"
FIGURES = FILE.parent / "figures"

_HEAD = """# The barrier protocol

<!-- Made by `make diagrams` of the tables in snapshots/headrace_snapshots/protocol. -->

Tasks and the coordinator of a snapshot are state machines without I/O: events in, effects out. Each is one table,
whose rows are read from the top: the first whose condition holds decides. `headrace simulate` runs them. Epochs of
pipelines run under the same coordinator: its tasks are the levels of an epoch. A level acknowledges when all of its
tasks have stored their part, and nothing but the coordinator says that a manifest may be committed. The role of a task
is not needed there: a level begins when the one above has ended, so barriers are always aligned.
"""

_BREAK = "\n\n"
_DETECT = """`headrace simulate --detect PROPERTY` runs processes over any graph, judges every recorded state, and
compares the run with the theorem. The recorded state lies on a run of the same events; a property that was found in
it holds at the end of the snapshot; and a property that held at the beginning was found. Where channels are not first
in, first out (`--without fifo`), nobody can rely on any of that.
"""


@dataclass(frozen=True)
class _Diagram:
    """A file beside the page, and the states that it shows of a table."""

    file: str
    rows: Sequence[Row[Any, Any]]
    layout: Layout


def _places(places: Mapping[StrEnum, Place]) -> dict[str, Place]:
    return {state.value: place for state, place in places.items()}


def _ways(numbers: Mapping[tuple[StrEnum, StrEnum], float]) -> dict[Arrow, float]:
    return {(start.value, end.value): number for (start, end), number in numbers.items()}


_P, _R, _S = PartState, RunState, SnapshotState
TASK = _Diagram(
    "protocol_task.svg",
    TASK_TABLE.rows,
    Layout(
        "A task's part of a snapshot",
        _places(
            {
                _P.EXPECTED: (1.3, 2.1),
                _P.ALIGNING: (3.9, 3.25),
                _P.LOGGING: (3.9, 0.95),
                _P.STOPPED: (6.5, 2.1),
                _P.CLOSED: (9.4, 2.1),
            }
        ),
        bends=_ways({(_P.EXPECTED, _P.CLOSED): -0.5, (_P.ALIGNING, _P.CLOSED): -0.15, (_P.LOGGING, _P.CLOSED): 0.15}),
        labels=_ways({(_P.EXPECTED, _P.STOPPED): 0.28, (_P.ALIGNING, _P.LOGGING): 0.65}),
        headroom=0.9,
    ),
)
RUN = _Diagram(
    "protocol_coordinator.svg",
    COORDINATOR_TABLE.rows,
    Layout(
        "The coordinator",
        _places({_R.RUNNING: (1.3, 1.8), _R.SETTLING: (4.1, 1.8), _R.RESTORING: (6.9, 1.8), _R.FENCED: (1.3, 0.5)}),
        bends=_ways({(_R.RUNNING, _R.RESTORING): -0.25, (_R.RESTORING, _R.RUNNING): 0.5}),
        headroom=1.2,
    ),
)
SNAPSHOT = _Diagram(
    "protocol_snapshot.svg",
    COORDINATOR_TABLE.rows,
    Layout(
        "A snapshot",
        _places(
            {
                _S.BEGUN: (1.3, 1.4),
                _S.WHOLE: (4.4, 1.4),
                _S.COMMITTING: (6.9, 1.4),
                _S.COMPLETE: (9.4, 1.4),
                _S.ABANDONED: (4.4, 0.5),
            }
        ),
    ),
)


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    parts += _role("A task's part of a snapshot", barriers.__doc__, [TASK])
    parts += _role("The coordinator, and a snapshot", coordinator.__doc__, [RUN, SNAPSHOT])
    parts.append(_detection())
    return "\n".join(parts)


def draw_diagrams() -> dict[str, str]:
    """The diagrams by file, as SVG."""
    return {diagram.file: state_diagram(diagram.layout, _arrows(diagram)) for diagram in (TASK, RUN, SNAPSHOT)}


def _role(title: str, theory: str | None, diagrams: Sequence[_Diagram]) -> Iterator[str]:
    rows = diagrams[0].rows
    yield f"## {title}\n"
    yield f"```text\n{(theory or '').strip()}\n```\n"
    yield from (f"![{_describe_diagram(diagram)}]({FIGURES.name}/{diagram.file})\n" for diagram in diagrams)
    yield "| in state | on | when | then | does |\n|---|---|---|---|---|"
    yield from (_line(row) for row in rows)
    yield ""
    yield from _glossary(rows)


def _describe_diagram(diagram: _Diagram) -> str:
    """For those who do not see it."""
    ways = (f"{start} to {end}" for start, end in _arrows(diagram))
    return f"States, beginning with {next(iter(diagram.layout.places))}: {', '.join(ways)}"


def _detection() -> str:
    theory = f"```text\n{(processes.__doc__ or '').strip()}\n```\n"
    kinds = [
        f"- **{kind}**: {' '.join((inspect.getdoc(doing) or '').partition(_BREAK)[0].split())}"
        for kind, doing in BEHAVIOURS.items()
    ]
    return "\n".join(["## Stable properties\n", theory, _DETECT, *kinds, ""])


def _arrows(diagram: _Diagram) -> dict[Arrow, list[str]]:
    """The rows that lead from one state to another; rows with the same ends are one arrow."""
    events: dict[Arrow, list[str]] = defaultdict(list)
    kinds = {type(state) for row in diagram.rows for state in row.states if state.value in diagram.layout.places}
    for row in diagram.rows:
        for state in row.states:
            if type(state) in kinds and row.then is not None and row.then is not state:
                label = row.event.value + (f" [{_words(row.when)}]" if row.when else "")
                if label not in events[state.value, row.then.value]:
                    events[state.value, row.then.value].append(label)
    return events


def _line(row: Row[Any, Any]) -> str:
    states = ", ".join(state.value for state in row.states)
    when = _words(row.when) if row.when else ""
    next_state = row.then.value if row.then else "(stays)"
    return f"| {states} | {row.event.value} | {when} | {next_state} | {', '.join(map(_words, row.do))} |"


def _glossary(rows: Iterable[Row[Any, Any]]) -> Iterator[str]:
    """What conditions and actions mean, each once."""
    functions = {f: None for row in rows for f in ([row.when] if row.when else []) + [*row.do]}
    yield from (f"- *{_words(function)}*: {inspect.getdoc(function)}" for function in functions)
    yield ""


def _words(function: Any) -> str:
    return str(function.__name__).replace("_", " ")


def main() -> None:
    """Write page and diagrams."""
    FILE.write_text(page(), encoding="utf-8")
    for name, diagram in draw_diagrams().items():
        (FIGURES / name).write_text(diagram, encoding="utf-8")


if __name__ == "__main__":
    main()
