"""``scripts.rehouse`` on a small tree: what moves, what is joined, what follows, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.rehouse.checkout import Checkout
from scripts.rehouse.patches import renew_patches, run_plans, transplant
from scripts.rehouse.plan import Fix, Join, Plan, RefusedPlanError, plan_files, read_plan
from scripts.rehouse.run import run_plan

FILES = {
    "jobs/headrace/__init__.py": '"""The package."""\n\n_HOMES = {"area": "headrace.shapes.areas"}\n',
    "jobs/headrace/__init__.pyi": "from headrace.shapes.areas import area as area\n",
    "jobs/headrace/shapes/__init__.py": '"""Shapes."""\n',
    "jobs/headrace/shapes/sides.py": '''"""Sides."""

from headrace import units


def _check(side: int) -> int:
    return units.whole(side)


def side(value: int) -> int:
    """What ``_check`` gives."""
    return _check(value)
''',
    "jobs/headrace/shapes/areas.py": '''"""Areas."""

from typing import TYPE_CHECKING

from headrace.shapes import sides

if TYPE_CHECKING:
    from headrace.lengths.meters import Meters


def _check(area: int) -> int:
    return area


def area(value: "Meters | int") -> int:
    from headrace.shapes.sides import side

    return _check(side(value) * sides.side(value))
''',
    "jobs/headrace/units.py": '"""Units."""\n\n\ndef whole(value: int) -> int:\n    return int(value)\n',
    "jobs/headrace/lengths/__init__.py": '"""Lengths."""\n',
    "jobs/headrace/lengths/meters.py": '"""Meters."""\n\n\nclass Meters(int):\n    pass\n',
    "jobs/headrace/user.py": '''"""Uses shapes."""

from headrace import units
from headrace.shapes.sides import _check

PLACE = "headrace.shapes.sides:side"


def both(value: int) -> int:
    from headrace.shapes.areas import area

    return area(_check(units.whole(value)))
''',
    "docs/shapes.md": "Read `shapes/sides.py` and jobs/headrace/lengths/meters.py.\n",
}
PLAN = Plan(
    (
        Join(
            "headrace.shapes.areas",
            ("headrace.shapes.sides", "headrace.shapes.areas"),
            lead="Areas and sides.",
            renames={"headrace.shapes.sides": {"_check": "_check_side"}},
        ),
        Join("headrace.numbers", ("headrace.units",)),
        Join("headrace.meters", ("headrace.lengths.meters",)),
    ),
    (Fix("docs/shapes.md", "Read ", "See "),),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The small tree, under version control."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    checkout = Checkout(tmp_path)
    checkout.git("init", "-q")
    checkout.git("config", "user.name", "Tester")
    checkout.git("config", "user.email", "tester@example.com")
    _commit(checkout, "before")
    return checkout


def _commit(checkout: Checkout, message: str) -> str:
    checkout.git("add", "-A")
    checkout.git("commit", "-q", "-m", message)
    return checkout.git("rev-parse", "HEAD").strip()


def _texts(checkout: Checkout) -> dict[str, str]:
    """Every file under version control."""
    return {name: (checkout.root / name).read_text("utf-8") for name in checkout.git("ls-files").split()}


def test_modules_move_and_join_and_all_that_names_them_follows(checkout: Checkout) -> None:
    outcome = run_plan(checkout, PLAN)

    texts = _texts(checkout)
    assert outcome.remarks == []
    assert {Path(name).name for name in texts if name.startswith("jobs/headrace/shapes")} == {"__init__.py", "areas.py"}
    assert not (checkout.root / "jobs/headrace/lengths").exists()
    assert (
        texts["jobs/headrace/shapes/areas.py"]
        == '''"""Areas and sides.

Sides.

Areas.
"""

from typing import TYPE_CHECKING

from headrace import numbers

if TYPE_CHECKING:
    from headrace.meters import Meters


def _check_side(side: int) -> int:
    return numbers.whole(side)


def side(value: int) -> int:
    """What ``_check_side`` gives."""
    return _check_side(value)


def _check(area: int) -> int:
    return area


def area(value: "Meters | int") -> int:

    return _check(side(value) * side(value))
'''
    )
    assert "from headrace import numbers\n" in texts["jobs/headrace/user.py"]
    assert "import _check_side\n" in texts["jobs/headrace/user.py"]
    assert 'PLACE = "headrace.shapes.areas:side"\n' in texts["jobs/headrace/user.py"]
    assert "area(_check_side(numbers.whole(value)))" in texts["jobs/headrace/user.py"]
    assert texts["jobs/headrace/__init__.pyi"] == "from headrace.shapes.areas import area as area\n"
    assert texts["docs/shapes.md"] == "See `shapes/areas.py` and jobs/headrace/meters.py.\n"
    used = "from headrace.user import both; from headrace.shapes.areas import side; print(both(3), side(2))"
    printed = subprocess.run(
        [sys.executable, "-c", used],
        cwd=checkout.root / "jobs",
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout
    assert printed == "9 2\n"


def test_a_plan_whose_names_collide_is_refused(checkout: Checkout) -> None:
    join = Join("headrace.shapes.areas", ("headrace.shapes.sides", "headrace.shapes.areas"))

    with pytest.raises(RefusedPlanError, match="_check in sides and areas"):
        run_plan(checkout, Plan((join,)))

    assert _texts(checkout) == FILES


def test_a_plan_that_makes_a_circle_is_refused(checkout: Checkout) -> None:
    join = Join("headrace.units", ("headrace.units", "headrace.user"))

    with pytest.raises(RefusedPlanError, match=r"a circle: .*headrace\.units"):
        run_plan(checkout, Plan((join,)))

    assert _texts(checkout) == FILES


def test_a_dry_run_writes_nothing(checkout: Checkout) -> None:
    outcome = run_plan(checkout, PLAN, dry=True)

    assert outcome.lines.keys() == {join.target for join in PLAN.joins}
    assert _texts(checkout) == FILES


def test_a_module_that_is_gone_is_named_and_left_out(checkout: Checkout) -> None:
    outcome = run_plan(checkout, Plan((Join("headrace.numbers", ("headrace.units", "headrace.gone")),)))

    assert outcome.remarks == ["not there: headrace.gone"]
    assert (checkout.root / "jobs/headrace/numbers.py").exists()


@pytest.fixture
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that moves the module ``units``."""
    file = tmp_path_factory.mktemp("plans") / "units.toml"
    file.write_text('[[join]]\ntarget = "headrace.numbers"\nmodules = ["headrace.units"]\n', encoding="utf-8")
    return file


def test_a_branch_is_taken_over(checkout: Checkout, plan_file: Path) -> None:
    before = checkout.git("rev-parse", "HEAD").strip()
    branch = checkout.git("branch", "--show-current").strip()
    units = checkout.root / "jobs/headrace/units.py"
    units.write_text(units.read_text("utf-8") + "\n\ndef half(value: int) -> int:\n    return value // 2\n", "utf-8")
    changed = _commit(checkout, "Halves")
    checkout.git("checkout", "-q", before)
    run_plans(checkout, [plan_file])
    after = _commit(checkout, "joins")
    checkout.git("checkout", "-q", branch)

    transplant(checkout, before, after, [plan_file])

    assert checkout.git("log", "--format=%s", "-2").split() == ["Halves", "joins"]
    assert "def half" in (checkout.root / "jobs/headrace/numbers.py").read_text("utf-8")
    assert checkout.git("diff", "--name-only", after).split() == ["jobs/headrace/numbers.py"]
    assert checkout.git("rev-parse", f"{branch}-before").strip() == changed


def test_a_patch_is_made_again(checkout: Checkout, plan_file: Path) -> None:
    units = checkout.root / "jobs/headrace/units.py"
    old = units.read_text("utf-8")
    units.write_text(old.replace("int(value)", "round(value)"), "utf-8")
    patch = checkout.root / "tests/additions/rounded.patch"
    patch.parent.mkdir(parents=True)
    patch.write_text(checkout.git("diff"), "utf-8")
    units.write_text(old, "utf-8")
    before = _commit(checkout, "a patch")
    run_plans(checkout, [plan_file])

    assert renew_patches(checkout, before, [plan_file]) == [patch]

    checkout.git("apply", str(patch))
    assert "round(value)" in (checkout.root / "jobs/headrace/numbers.py").read_text("utf-8")


def test_no_module_is_in_two_joins_of_a_plan() -> None:
    for file in plan_files([]):
        modules = [module for join in read_plan(file).joins for module in join.modules]
        assert len(modules) == len(set(modules)), file
