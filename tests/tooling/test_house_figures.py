"""The figures of ``scripts/house_figures``, and when they fall behind."""

from pathlib import Path

from scripts.house_figures import Figures, fallen_behind, measure

FLOORS = Figures(files=2, median=7, imports=30, longest=10)


def _product(root: Path, **files: str) -> Path:
    for base, package in (("jobs", "headrace"), ("snapshots", "headrace_snapshots"), ("plugins", "headrace_airflow")):
        (root / base / package).mkdir(parents=True)
    for name, text in files.items():
        (root / "jobs/headrace" / f"{name}.py").write_text(text)
    return root


def test_files_lines_and_imports_are_counted(tmp_path: Path) -> None:
    root = _product(
        tmp_path,
        short="a = 1\n" * 5,
        seven="import os\nfrom sys import (\n    path,\n)\n" + "a = 1\n" * 3,
        inner="def f():\n    import os\n" + "    a = 1\n" * 9,
    )
    assert measure(root) == Figures(files=2, median=9, imports=27.8, longest=11)


def test_each_figure_that_falls_behind_is_named() -> None:
    assert fallen_behind(FLOORS, FLOORS) == []
    assert fallen_behind(Figures(files=3, median=6, imports=31.5, longest=11), FLOORS) == [
        "3 files of the product: at most 2",
        "a median of 6 lines a file: at least 7",
        "31.5 % of lines are imports: at most 30 %",
        "a file of 11 lines: at most 10",
    ]
