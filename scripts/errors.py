"""The tree of errors, read from the sources: what ``headrace.error_tree`` draws, and what tests/golden has of releases.

``python -m scripts.errors`` says what either lacks, and fails then, as ``make check`` does. ``--write`` draws the tree
again and lists new codes. What the golden list has is never changed: codes, classes and branches stay.
"""

import ast
import csv
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("jobs/headrace", "lab/headrace_lab", "snapshots/headrace_snapshots", "plugins/headrace_airflow")
BASE = "HeadraceError"

TREE_FILE = "jobs/headrace/error_tree.py"
_DRAWN_TREE = re.compile(r'(?<=^TREE: Final = """\n).*?(?=^""")', re.MULTILINE | re.DOTALL)
_CODE = re.compile(r'\bcode(: ClassVar\[str\])? ?= ?"')
_COLUMNS = (38, 28)


@dataclass(frozen=True)
class ErrorClass:
    """A class of the error tree, as its module says it. ``exit_code`` and ``remedy`` are said by branches alone."""

    name: str
    base: str
    code: str
    exit_code: int | None
    remedy: str | None
    meaning: str
    module: str


@dataclass(frozen=True)
class ReleasedError:
    """What a version has released of one error, and every later version has: a line of the golden list.

    ``below``: the code of the class that an ``except`` may name instead.
    """

    code: str
    error: str
    below: str
    remedy: str
    exit_code: int
    since: str


GOLDEN = ROOT / "tests" / "golden" / "error_codes.csv"


def error_classes(root: Path = ROOT) -> dict[str, ErrorClass]:
    """Every error with a code, by its class's name. Read from the sources: nothing is imported.

    Raises ValueError for two classes of one name.
    """
    classes: dict[str, ErrorClass] = {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if not _CODE.search(text):
                continue
            module = ".".join((Path(folder).name, *file.relative_to(root / folder).with_suffix("").parts))
            for error in _errors_of(ast.parse(text), module.removesuffix(".__init__")):
                if error.name in classes:
                    raise ValueError(
                        f"two error classes are called {error.name}: {classes[error.name].module}, {module}"
                    )
                classes[error.name] = error
    return classes


def _errors_of(tree: ast.Module, module: str) -> Iterator[ErrorClass]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and "code" in (constants := dict(_constants(node))):
            base = node.bases[0].id if node.bases and isinstance(node.bases[0], ast.Name) else ""
            meaning = " ".join((ast.get_docstring(node) or "").split())
            number, remedy = constants.get("exit_code"), constants.get("remedy")
            yield ErrorClass(
                node.name,
                base,
                str(constants["code"]),
                number if isinstance(number, int) else None,
                remedy if isinstance(remedy, str) else None,
                meaning,
                module,
            )


def _constants(node: ast.ClassDef) -> Iterator[tuple[str, object]]:
    for keyword in node.keywords:
        if keyword.arg is not None and isinstance(keyword.value, ast.Constant):
            yield keyword.arg, keyword.value.value
    for line in node.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        value = getattr(line, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            yield target.id, value.value


def draw_tree(classes: Mapping[str, ErrorClass]) -> str:
    """The tree as ``headrace.errors`` draws it: a line for each class, below that of its base."""
    return "".join(f"{line}\n" for line in _drawn_below("", classes, 0))


def _drawn_below(base: str, classes: Mapping[str, ErrorClass], depth: int) -> Iterator[str]:
    subclasses = [
        subclass for subclass in classes.values() if (subclass.base if subclass.base in classes else "") == base
    ]
    for subclass in sorted(
        subclasses, key=lambda subclass: (depth == 1 and branch(subclass, classes).exit_code, subclass.code)
    ):
        code = f"{'  ' * depth}- {subclass.code}"
        yield f"{code:<{_COLUMNS[0]}} {subclass.name:<{_COLUMNS[1]}} {subclass.module}"
        yield from _drawn_below(subclass.name, classes, depth + 1)


def branch(error: ErrorClass, classes: Mapping[str, ErrorClass]) -> ErrorClass:
    """The nearest class at or above ``error`` that says what to do."""
    while error.exit_code is None:
        error = classes[error.base]
    return error


def codes_above(error: ErrorClass, classes: Mapping[str, ErrorClass]) -> Iterator[str]:
    """The codes of the classes that ``error`` is one of."""
    while error.base in classes:
        error = classes[error.base]
        yield error.code


def entries(classes: Mapping[str, ErrorClass], version: str) -> list[ReleasedError]:
    """A line of the golden list for each class, by code."""
    return [
        ReleasedError(
            error.code,
            error.name,
            classes[error.base].code if error.base in classes else "",
            str(branch(error, classes).remedy),
            branch(error, classes).exit_code or 0,
            version,
        )
        for error in sorted(classes.values(), key=lambda error: error.code)
    ]


def read_released() -> dict[str, ReleasedError]:
    """The golden list, by code."""
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        next(lines := csv.reader(file))  # the names of the columns
        return {
            code: ReleasedError(code, error, parent, remedy, int(exit_code), version)
            for code, error, parent, remedy, exit_code, version in lines
        }


def stale_tree(classes: Mapping[str, ErrorClass], root: Path = ROOT) -> Iterator[str]:
    """Says whether ``headrace.error_tree`` draws another tree than ``classes`` are."""
    match = _DRAWN_TREE.search((root / TREE_FILE).read_text(encoding="utf-8"))
    if match is None:
        yield f"{TREE_FILE}: there is no tree"
    elif match[0] != draw_tree(classes):
        lines, expected = match[0].splitlines(), draw_tree(classes).splitlines()
        for line in (line for line in expected if line not in lines):
            yield f"{TREE_FILE}: the tree lacks: {' '.join(line.split())}"
        for line in (line for line in lines if line not in expected):
            yield f"{TREE_FILE}: the tree has, and no module: {' '.join(line.split())}"
        yield f"{TREE_FILE}: draw the tree again: python -m scripts.errors --write"


def unlike_released(classes: Mapping[str, ErrorClass], golden: Mapping[str, ReleasedError]) -> Iterator[str]:
    """Names each code that is not what was released, or that no line of the golden list has."""
    today = {entry.code: entry for entry in entries(classes, "")}
    for code, line in golden.items():
        if code not in today:
            yield f"{code} ({line.error}) was released in {line.since} and is gone: a code stays"
            continue
        if line.below and line.below not in codes_above(classes[today[code].error], classes):
            yield f"{code} is not below {line.below} any more, where {line.since} had it: it stays"
        for name in ("error", "remedy", "exit_code"):
            is_now, was = getattr(today[code], name), getattr(line, name)
            if is_now != was:
                yield f"{code}: its {name} is {is_now!r} and was {was!r} in {line.since}: it stays"
    for code in sorted(today.keys() - golden.keys()):
        yield f"{code} ({today[code].error}) is not in {GOLDEN.relative_to(ROOT)}: python -m scripts.errors --write"


def write() -> None:
    """Draw the tree, and add what the golden list lacks."""
    classes = error_classes()
    file = ROOT / TREE_FILE
    file.write_text(
        _DRAWN_TREE.sub(lambda _: draw_tree(classes), file.read_text(encoding="utf-8"), count=1), encoding="utf-8"
    )
    golden = read_released()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    golden = {entry.code: entry for entry in entries(classes, version)} | golden
    with GOLDEN.open("w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([field.name for field in fields(ReleasedError)])
        writer.writerows(astuple(golden[code]) for code in sorted(golden))


def stale_errors() -> list[str]:
    """What the tree or the golden list lacks, has wrong, or has no more."""
    classes = error_classes()
    return [*stale_tree(classes), *unlike_released(classes, read_released())]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    stale = stale_errors()
    print("\n".join(stale) if stale else "All errors are drawn and listed.")
    sys.exit(bool(stale))
