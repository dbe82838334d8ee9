"""The figures of ``scripts/house_figures``, and when they fall behind."""

from pathlib import Path

from scripts.house_arrows import arrows_up, circling_modules, house_floors, named_modules, without_floor
from scripts.house_figures import Figures, fallen_behind, measure

FLOORS = Figures(files=2, median=7, imports=30, longest=10, circling=2, arrows_up=1)
FLOORS_OF_THE_HOUSE = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["headrace.attic", "headrace.street | headrace.yard", "headrace.cellar"]
"""


def _product(root: Path, **files: str) -> Path:
    for base, package in (("jobs", "headrace"), ("snapshots", "headrace_snapshots"), ("plugins", "headrace_airflow")):
        (root / base / package).mkdir(parents=True)
    for name, text in files.items():
        (root / "jobs/headrace" / f"{name}.py").write_text(text)
    (root / "pyproject.toml").write_text(FLOORS_OF_THE_HOUSE)
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
    assert fallen_behind(Figures(files=3, median=6, imports=31.5, longest=11, circling=3, arrows_up=2), FLOORS) == [
        "3 files of the product: at most 2",
        "a median of 6 lines a file: at least 7",
        "31.5 % of lines are imports: at most 30 %",
        "a file of 11 lines: at most 10",
        "3 modules in circles: at most 2",
        "2 arrows up: at most 1",
    ]


def test_arrows_up_are_imports_imports_for_types_and_strings(tmp_path: Path) -> None:
    root = _product(
        tmp_path,
        attic="A = 1\n",
        street="from headrace.cellar import C\n",
        yard='"""Not headrace.attic."""\nfrom headrace import street\nPART = "headrace.attic:A"\n',
        cellar="if TYPE_CHECKING:\n    import headrace.attic\nC = 'under headrace.street, too'\n",
    )
    assert arrows_up(named_modules(root), house_floors(root)) == [
        "jobs/headrace/cellar.py:2: headrace.cellar names headrace.attic, which stands above it",
        "jobs/headrace/cellar.py:3: headrace.cellar names headrace.street, which stands above it",
        "jobs/headrace/yard.py:3: headrace.yard names headrace.attic, which stands above it",
    ]


def test_modules_in_circles_are_found_by_imports_for_types_too(tmp_path: Path) -> None:
    root = _product(
        tmp_path,
        first="from headrace.second import A\n",
        second="if TYPE_CHECKING:\n    from headrace.third import B\n",
        third="from headrace import first\n",
        above="import headrace.first\n",
        below="A = 1\n",
    )
    assert circling_modules(named_modules(root)) == ["headrace.first", "headrace.second", "headrace.third"]


TABLES = ["headrace.built_in", "headrace.error_tree", "headrace.types"]
"""Names of modules of all floors, which ``headrace`` reads or nobody."""


def test_every_module_of_the_product_has_a_floor_but_the_tables_at_the_top() -> None:
    root = Path(__file__).resolve().parents[2]
    assert without_floor(named_modules(root), house_floors(root)) == TABLES


def test_a_module_without_a_floor_is_found(tmp_path: Path) -> None:
    root = _product(tmp_path, street="A = 1\n", beside="A = 1\n")
    assert without_floor(named_modules(root), house_floors(root)) == ["headrace.beside"]
