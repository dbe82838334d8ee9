"""Rules of the house that no linter knows: ``make check`` prints what breaks them and fails.

* A room (a folder of modules) has at most 25 files, ``__init__.py`` apart.
* A public class name means one thing. The reference interpreter may call an idea as the program does: it is the same.
* A docstring begins with a subject or a verb: not with Of, That, Those, It, or As (but As-of may).
* A local or a parameter is called for what it holds: ``EMPTY_NAMES`` say nothing of it.
* Sentences of documents, docstrings and messages are short, and without the habits that ``sentences`` lists.
* Methods of ``PipelineHandle`` have the options that ``RunOptions`` declares (``scripts.handle_options``).
* Errors are drawn in ``headrace.errors`` and stay as they were released (``scripts.errors``).
* Stubs say what is there (``scripts.stubs``).
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from scripts.errors import stale_errors
from scripts.handle_options import stale_signatures
from scripts.sentences import bad_sentences
from scripts.stubs import stale_stubs

ROOMS = ("jobs/headrace", "lab/headrace_lab", "snapshots/headrace_snapshots", "plugins/headrace_airflow")
MOST_FILES = 25
ORACLE = "lab/headrace_lab/reference/"
HAS_NO_SUBJECT = re.compile(r"(?:Of|That|Those|It|As)\b(?!-of\b)")
EMPTY_NAMES = frozenset({"came", "each", "found", "said", "some", "told"})

Modules = dict[str, ast.Module]


def modules(root: Path, folders: tuple[str, ...]) -> Modules:
    """The syntax trees of all modules in ``folders`` below ``root``, by path."""
    files = (file for folder in folders for file in sorted((root / folder).rglob("*.py")))
    return {str(file.relative_to(root)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def crowded_rooms(trees: Modules) -> Iterator[str]:
    """Names each folder with too many files."""
    rooms: defaultdict[str, int] = defaultdict(int)
    for file in trees:
        rooms[str(Path(file).parent)] += Path(file).name != "__init__.py"
    for room, count in rooms.items():
        if count > MOST_FILES:
            yield f"{room}: {count} files; a room has at most {MOST_FILES}: divide it by idea"


def ambiguous_classes(trees: Modules) -> Iterator[str]:
    """Names each public class that is defined twice outside of the reference interpreter."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for file, tree in trees.items():
        if not file.startswith(ORACLE):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(f"{file}:{node.lineno}")
    for name, places in homes.items():
        if len(places) > 1:
            yield f"{', '.join(places)}: class {name} means {len(places)} things: call each by what it is"


def docstrings_without_subject(trees: Modules) -> Iterator[str]:
    """Names each docstring that begins with a word that refers to something before it."""
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if HAS_NO_SUBJECT.match(text):
                    line = getattr(node, "lineno", 1)
                    yield f"{file}:{line}: a docstring begins with a subject or a verb: {text.splitlines()[0]!r}"


def empty_names(trees: Modules) -> Iterator[str]:
    """Names each local and parameter whose name says nothing of what it holds. Fields may be stored under theirs."""
    for file, tree in trees.items():
        fields = {
            id(statement.target)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for statement in node.body
            if isinstance(statement, ast.AnnAssign)
        }
        for node in ast.walk(tree):
            match node:
                case ast.arg(arg=name, lineno=line) | ast.Name(id=name, ctx=ast.Store(), lineno=line):
                    if name in EMPTY_NAMES and id(node) not in fields:
                        yield f"{file}:{line}: {name!r} says nothing of what it holds: call it by that"


def broken_rules(root: Path) -> list[str]:
    """All that breaks a rule, each with its place."""
    rooms = modules(root, ROOMS)
    return [
        *crowded_rooms(rooms),
        *ambiguous_classes(rooms),
        *docstrings_without_subject(rooms | modules(root, ("scripts", "dags"))),
        *empty_names(rooms),
        *bad_sentences(root, rooms),
    ]


if __name__ == "__main__":
    broken = [*broken_rules(Path(__file__).parent.parent), *stale_errors(), *stale_stubs(), *stale_signatures()]
    print("\n".join(broken) if broken else "The house is in order.")
    sys.exit(bool(broken))
