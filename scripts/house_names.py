"""Names of functions and of what they hold: how many are one word, and how many of these say nothing by themselves.

The counting rule of ``one_word_share``: functions and methods of the product, apart from dunders, properties and their
setters. A name is one word if nothing but leading underscores parts it.

``bare_names`` lists each function, class, constant, local and parameter, of product and tests, that is one participle,
preposition or adverb: ``held``, ``of``, ``again``. A verb with its object, or a noun with its kind, says more. Fields
are not counted: many are stored under their names.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from scripts.house_arrows import parse_text

FOLDERS: Final = ("jobs/headrace", "snapshots/headrace_snapshots", "plugins/headrace_airflow")
TESTED: Final = ("lab/headrace_lab", "scripts", "tests")


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
FLOORS: Final = {"one word": 17.4, "functions": 190, "types": 23, "others": 1185, "tests": 3088}
"""What the names may not fall behind any more: only ever moved towards 25 and nothing (docs/design/0029-names.md)."""

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
        "tests": sum(1 for _ in bare_names(root, TESTED)),
    }


def one_word_share(root: Path) -> float:
    """How many of a hundred functions of the product have a name of one word."""
    names = [name for kind, _, name, node in _names(root, FOLDERS) if kind == "functions" and _is_counted(node)]
    return round(100 * sum("_" not in name.strip("_") for name in names) / len(names), 1)


def bare_names(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Kind, place and name of each bare name."""
    return ((kind, place, name) for kind, place, name, _ in _names(root, folders) if is_bare(name))


def worse_names(figures: dict[str, float], floors: dict[str, float] | None = None) -> list[str]:
    """Names each figure that is above its floor."""
    floors = floors or FLOORS
    return [f"{name}: {figures[name]}, at most {most}" for name, most in floors.items() if figures[name] > most]


def _is_counted(node: ast.AST) -> bool:
    written = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())]
    is_dunder = str(getattr(node, "name", "")).startswith("__")
    return not is_dunder and not any("property" in one or ".setter" in one for one in written)


@cache
def _names(root: Path, folders: tuple[str, ...]) -> list[tuple[str, str, str, ast.AST]]:
    """Kind, place, name and node of everything that gets a name, apart from fields."""
    names: list[tuple[str, str, str, ast.AST]] = []
    for path in (path for folder in folders for path in sorted((root / folder).rglob("*.py"))):
        fields: set[int] = set()
        for node in ast.walk(parse_text(path.read_text(encoding="utf-8"))):
            kind, field = _KINDS.get(type(node), ("", ""))
            if kind == "types":
                body = getattr(node, "body", ())
                fields |= {id(statement.target) for statement in body if isinstance(statement, ast.AnnAssign)}
            if kind and id(node) not in fields and not isinstance(getattr(node, "ctx", None), ast.Load | ast.Del):
                place = f"{path.relative_to(root)}:{getattr(node, 'lineno', 1)}"
                names.append((kind, place, getattr(node, field), node))
    return names


def report_names(root: Path) -> list[str]:
    """Print the figures of a checkout at ``root``, and give what is worse than the floors."""
    figures = measure(root)
    print("names:", ", ".join(f"{name} {figure:g}" for name, figure in figures.items()))
    return [f"names fall behind: {one}; python -m scripts.house_names --list" for one in worse_names(figures)]


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    worse = report_names(here)
    for kind, place, name in bare_names(here, FOLDERS) if "--list" in sys.argv else ():
        print(f"{place}: {kind}: {name}")
    print(*worse, sep="\n", end="\n" if worse else "")
    sys.exit(bool(worse))
