"""``make figures``: the pipelines behind figures 5 to 14 of the Dataflow paper run, and what they emitted is drawn.

The same panes give the same bytes, so a rerun changes no file.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.errors import GiveUpError
from headrace_lab.conformance.cases import AdvanceProcessingTime, Case
from headrace_lab.conformance.replay import CaseExecutor, CaseReplay
from headrace_lab.conformance.runner import EXECUTORS
from headrace_lab.paper_figures import EmittedPane, Picture, svg
from scripts.paper_example import EVENT_TIMES, POINTS, PROCESSING_TIMES, Example, examples

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"


class FigureError(GiveUpError):
    """A pipeline of the paper did not run."""

    code = "give_up.figures"


def pictures(executor: CaseExecutor) -> dict[int, Picture]:
    """The pictures by the number of their figure, from the panes that ``executor`` emits. Raises FigureError."""
    examples_with_cases = [(example, example.case) for example in examples()]
    replays = iter(executor.replay([case for _, case in examples_with_cases if case is not None]))
    return {
        example.number: _picture(example, () if case is None else tuple(_emitted_panes(case, next(replays))))
        for example, case in examples_with_cases
    }


def _emitted_panes(case: Case, replay: CaseReplay) -> Iterator[EmittedPane]:
    if replay.error or replay.unsupported:
        raise FigureError(f"{case.name}: {replay.error or replay.unsupported}")
    now = case.initial_processing_time
    for step, outcome in zip(case.steps, replay.outcomes, strict=True):
        if isinstance(step, AdvanceProcessingTime):
            now = step.to
        yield from (EmittedPane(now, pane) for pane in outcome.panes)


def _picture(example: Example, emissions: Sequence[EmittedPane]) -> Picture:
    return Picture(
        title=f"Figure {example.number}: {example.title}",
        subtitle=example.subtitle,
        points=POINTS,
        watermark=example.course.watermark,
        emissions=emissions,
        event_times=EVENT_TIMES,
        processing_times=PROCESSING_TIMES,
        shows_ideal=example.case is None,
    )


def file_name(number: int) -> str:
    """The file of figure ``number``."""
    return f"figure_{number:02}.svg"


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m scripts.figures [--executor reference|spark] [--out FOLDER]``."""
    parser = argparse.ArgumentParser(description="Draw figures 5 to 14 of the Dataflow paper from real panes.")
    parser.add_argument("--executor", choices=sorted(EXECUTORS), default="spark")
    parser.add_argument("--out", type=Path, default=FOLDER, help="default: docs/figures")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    pictures_by_number = pictures(EXECUTORS[options.executor]())
    for number, picture in pictures_by_number.items():
        (options.out / file_name(number)).write_text(svg(picture), encoding="utf-8")
    print(f"{len(pictures_by_number)} figures in {options.out}, from panes of {options.executor}")


if __name__ == "__main__":
    main()
