"""Figures of the house: how many files the product has, how long they are, how much of them is imports.

``make check`` prints them, and fails beyond ``FLOORS``, which are only ever moved towards ``AIMS``
(docs/design/0021-house.md). The counting rule:

* Product is ``jobs/headrace``, ``snapshots/headrace_snapshots`` and ``plugins/headrace_airflow``.
* A file counts if it has more than five lines.
* Lines of imports are all lines of import statements, wherever they stand, beside all lines of files that count.
* Modules in circles, and arrows up the house, count imports for types too (``scripts.house_arrows``).
"""

import ast
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.house_arrows import arrows_up, circling_modules, house_floors, named_modules, parse_text

PRODUCT: Final = ("jobs/headrace", "snapshots/headrace_snapshots", "plugins/headrace_airflow")
FEWEST_LINES: Final = 6
MOST_LINES: Final = 700


@dataclass(frozen=True)
class Figures:
    """``imports``: their part of all lines, in percent. ``longest``: lines of the longest file. ``circling``: modules
    in circles. ``arrows_up``: modules that one of a lower floor names.
    """

    files: int
    median: float
    imports: float
    longest: int
    circling: int = 0
    arrows_up: int = 0


AIMS: Final = Figures(files=320, median=200, imports=6.0, longest=MOST_LINES)
FLOORS: Final = Figures(files=320, median=300, imports=6.0, longest=MOST_LINES, circling=0, arrows_up=0)
"""What the product may not fall behind any more. Move these when it comes nearer to the aims."""


def product(root: Path) -> list[str]:
    """The texts of the files of the product that count."""
    files = (file for folder in PRODUCT for file in sorted((root / folder).rglob("*.py")))
    texts = (file.read_text(encoding="utf-8") for file in files)
    return [text for text in texts if len(text.splitlines()) >= FEWEST_LINES]


def measure(root: Path) -> Figures:
    """The figures of a checkout at ``root``."""
    texts = product(root)
    lines = [len(text.splitlines()) for text in texts]
    import_lines = sum(
        node.end_lineno - node.lineno + 1
        for text in texts
        for node in ast.walk(parse_text(text))
        if isinstance(node, ast.Import | ast.ImportFrom) and node.end_lineno is not None
    )
    modules = named_modules(root)
    return Figures(
        files=len(texts),
        median=statistics.median(lines),
        imports=round(100 * import_lines / sum(lines), 1),
        longest=max(lines),
        circling=len(circling_modules(modules)),
        arrows_up=len(arrows_up(modules, house_floors(root))),
    )


def fallen_behind(figures: Figures, floors: Figures = FLOORS) -> list[str]:
    """What is worse than the floors, each with its figure."""
    worse = {
        f"{figures.files} files of the product: at most {floors.files}": figures.files > floors.files,
        f"a median of {figures.median} lines a file: at least {floors.median}": figures.median < floors.median,
        f"{figures.imports} % of lines are imports: at most {floors.imports} %": figures.imports > floors.imports,
        f"a file of {figures.longest} lines: at most {floors.longest}": figures.longest > floors.longest,
        f"{figures.circling} modules in circles: at most {floors.circling}": figures.circling > floors.circling,
        f"{figures.arrows_up} arrows up: at most {floors.arrows_up}": figures.arrows_up > floors.arrows_up,
    }
    return [text for text, is_worse in worse.items() if is_worse]


def report_figures(root: Path) -> list[str]:
    """Print the figures of a checkout at ``root``, and give what is worse than the floors."""
    figures = measure(root)
    print(
        f"Product: {figures.files} files (aim {AIMS.files}), median {figures.median:g} lines (aim {AIMS.median:g}), "
        f"imports {figures.imports} % (aim {AIMS.imports} %), longest {figures.longest}, "
        f"{figures.circling} modules in circles, {figures.arrows_up} arrows up."
    )
    return fallen_behind(figures)


if __name__ == "__main__":
    problems = report_figures(Path(__file__).parent.parent)
    print(*problems, sep="\n", end="\n" if problems else "")
    sys.exit(bool(problems))
