"""Names of functions and of what they hold: how many are one word, and how many of these say nothing by themselves.

The counting rule of ``one_word_share``: functions and methods of the product, apart from dunders, properties and their
setters. A name is one word if nothing but leading underscores parts it.

``bare_names`` lists each function, class, constant, local and parameter, of product and tests, that is one participle,
preposition or adverb: ``held``, ``of``, ``again``. A verb with its object, or a noun with its kind, says more. Fields
are not counted: many are stored under their names. Nor are members of enums, which are read with
the name of their enum. Nor are ``PUBLIC_NAMES``, which has a reason for each.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from scripts.house_arrows import parse_text
from scripts.public_names import PUBLIC_NAMES

FOLDERS: Final = ("jobs/headrace", "snapshots/headrace_snapshots", "plugins/headrace_airflow")
TEST_FOLDERS: Final = ("lab/headrace_lab", "scripts", "tests")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PREPOSITIONS: Final = _words(
    "about above after against along among around at before behind below beneath beside besides between beyond by down"
    " during for from in inside into near of off on onto out outside over since through till to toward towards under"
    " until unto up upon with within without"
)
ADVERBS: Final = _words(
    "again ago ahead alike alone already also always anew anyway apart away back backwards else ever everywhere forth"
    " forwards here hence instead later maybe meanwhile never nowhere often once only otherwise quite rather so"
    " somewhere soon still then there thus together too twice very well yet"
)
PARTICIPLES: Final = _words(
    "been begun being broken brought built bought came caught chosen come dealt done drawn driven fallen felt found"
    " given gone grown having heard held hidden kept known laid led lent lost made meant met paid said seen sent shown"
    " shut sought spent spoken stood struck taken taught thought thrown told torn understood woken won written"
)
_REGULAR: Final = re.compile(r"[a-z]{2,}[^e]ed")
NOUNS_AND_ADJECTIVES: Final = _words("embed exceed expected hundred indeed proceed shed shred speed")
"""Words of this shape that are names: ``expected`` stands beside what a test got."""
FLOORS: Final = {"one word": 16.7, "functions": 0, "types": 0, "others": 0, "tests": 0}
"""What the names may not fall behind any more: only ever moved towards 25 and nothing (docs/design/0029-names.md)."""

_PUBLIC: Final = {
    (path, name) for of_reason in PUBLIC_NAMES.values() for path, names in of_reason.items() for name in names.split()
}

_KINDS: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.FunctionDef: ("functions", "name"),
    ast.AsyncFunctionDef: ("functions", "name"),
    ast.ClassDef: ("types", "name"),
    ast.arg: ("others", "arg"),
    ast.Name: ("others", "id"),
}
"""What each kind of node is counted as, and the field that has its name."""


@cache
def is_bare(name: str) -> bool:
    """Whether a name is a participle, a preposition or an adverb alone, leading underscores apart."""
    word = name.strip("_")
    if sum(letter.isupper() for letter in word) > 1 and not word.isupper():
        return False
    word = word.lower()
    if word in NOUNS_AND_ADJECTIVES:
        return False
    return word in PREPOSITIONS or word in ADVERBS or word in PARTICIPLES or bool(_REGULAR.fullmatch(word))


def measure(root: Path) -> dict[str, float]:
    """The figures that ``FLOORS`` hold. ``tests``: all bare names of tests, of the lab and of scripts."""
    kinds = [kind for kind, _, _ in bare_names(root, FOLDERS)]
    return {
        "one word": one_word_share(root),
        "functions": kinds.count("functions"),
        "types": kinds.count("types"),
        "others": kinds.count("others"),
        "tests": sum(1 for _ in bare_names(root, TEST_FOLDERS)),
    }


def one_word_share(root: Path) -> float:
    """How many of a hundred functions of the product have a name of one word."""
    functions = (name for kind, _, name, node in _names(root, FOLDERS) if kind == "functions" and _is_counted(node))
    names = [name.rpartition(".")[2] for name in functions]
    return round(100 * sum("_" not in name.strip("_") for name in names) / len(names), 1)


def bare_names(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Kind, place and name of each bare name that is not one of ``PUBLIC_NAMES``."""
    for kind, place, qualified_name, _ in _names(root, folders):
        name = qualified_name.rpartition(".")[2]
        if is_bare(name) and (place.rpartition(":")[0], qualified_name) not in _PUBLIC:
            yield kind, place, name


def gone_public_names(root: Path) -> list[str]:
    """The entries of ``PUBLIC_NAMES`` that name nothing bare any more."""
    names_there = {(place.rpartition(":")[0], name) for _, place, name, _ in _names(root, (*FOLDERS, *TEST_FOLDERS))}
    return [f"{path}: {name}" for path, name in sorted(_PUBLIC - names_there)]


def worse_names(figures: dict[str, float], floors: dict[str, float] | None = None) -> list[str]:
    """Names each figure that is above its floor."""
    floors = floors or FLOORS
    return [f"{name}: {figures[name]}, at most {most}" for name, most in floors.items() if figures[name] > most]


def _is_counted(node: ast.AST) -> bool:
    decorators = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())]
    is_dunder = str(getattr(node, "name", "")).startswith("__")
    return not is_dunder and not any("property" in one or ".setter" in one for one in decorators)


@cache
def _names(root: Path, folders: tuple[str, ...]) -> list[tuple[str, str, str, ast.AST]]:
    """Kind, place, qualified name and node of everything that gets a name, apart from fields and members of enums."""
    names: list[tuple[str, str, str, ast.AST]] = []
    for path in (path for folder in folders for path in sorted((root / folder).rglob("*.py"))):
        tree = parse_text(path.read_text(encoding="utf-8"))
        for kind, scope, node in _named_nodes(tree, ()):
            place = f"{path.relative_to(root)}:{getattr(node, 'lineno', 1)}"
            names.append((kind, place, ".".join((*scope, getattr(node, _KINDS[type(node)][1]))), node))
    return names


def _named_nodes(parent: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], ast.AST]]:
    """Kind, scope and node of each name below ``parent``, whose own names are in ``scope``."""
    left_out = _field_targets(parent) if isinstance(parent, ast.ClassDef) else set()
    for node in ast.iter_child_nodes(parent):
        kind, _ = _KINDS.get(type(node), ("", ""))
        if kind and not isinstance(getattr(node, "ctx", None), ast.Load | ast.Del) and id(node) not in left_out:
            yield kind, scope, node
        is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for name in _named_nodes(node, (*scope, node.name) if is_scope else scope):  # type: ignore[attr-defined]
            if id(name[2]) not in left_out:
                yield name


def _field_targets(owner: ast.ClassDef) -> set[int]:
    """The ids of nodes that name fields of a class, or members of an enum, which are read with its name before them."""
    is_enum = any(ast.unparse(base).endswith(("Enum", "Flag")) for base in owner.bases)
    targets = [statement.target for statement in owner.body if isinstance(statement, ast.AnnAssign)]
    assignments = [statement for statement in owner.body if isinstance(statement, ast.Assign)] if is_enum else []
    members = (name for statement in assignments for target in statement.targets for name in ast.walk(target))
    return {id(target) for target in targets} | {id(name) for name in members}


def report_names(root: Path) -> list[str]:
    """Print the figures of a checkout at ``root``, and give what is worse than the floors."""
    figures = measure(root)
    print("names:", ", ".join(f"{name} {figure:g}" for name, figure in figures.items()))
    problems = [f"names fall behind: {one}; python -m scripts.house_names --list" for one in worse_names(figures)]
    return problems + [f"scripts/public_names.py names what is not there: {name}" for name in gone_public_names(root)]


if __name__ == "__main__":
    repository = Path(__file__).resolve().parent.parent
    worse = report_names(repository)
    for kind, place, name in bare_names(repository, (*FOLDERS, *TEST_FOLDERS)) if "--list" in sys.argv else ():
        print(f"{place}: {kind}: {name}")
    print(*worse, sep="\n", end="\n" if worse else "")
    sys.exit(bool(worse))
