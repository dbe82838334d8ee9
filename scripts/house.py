"""Rules of the house that no linter knows: ``make check`` prints what breaks them and fails.

* A room (a folder of modules) has at most 25 files, ``__init__.py`` apart.
* A public class name means one thing. The reference interpreter may call an idea as the program does: it is the same.
* A docstring begins with a subject or a verb: not with Of, That, Those, It, or As (but As-of may).
* A local or a parameter is called for what it holds: ``EMPTY_NAMES`` say nothing of it.
* Sentences of documents, docstrings and messages are short, and without the habits that ``sentences`` lists.
* Methods of ``PipelineHandle`` have the options that ``RunOptions`` declares (``scripts.handle_options``).
* Errors are drawn in ``headrace.errors`` and stay as they were released (``scripts.errors``).
* Stubs say what is there (``scripts.stubs``).
* Figures and names are no worse than their floors (``scripts.house_figures``, ``scripts.house_names``).
* What code of others is shown to import, in documents, examples and additions, is public (``PUBLIC``).
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from scripts.errors import stale_errors
from scripts.handle_options import stale_signatures
from scripts.house_figures import report_figures
from scripts.house_names import report_names
from scripts.sentences import PROGRAMS, SCRIPTS, bad_sentences, read_modules, too_many_clumsy
from scripts.stubs import stale_stubs

MOST_FILES = 25
ORACLE = "lab/headrace_lab/reference/"
HAS_NO_SUBJECT = re.compile(r"(?:Of|That|Those|It|As)\b(?!-of\b)")
EMPTY_NAMES = frozenset({"came", "each", "found", "said", "some", "told"})

SHOWN_PLACES = ("README.md", "docs", "examples", "tests/additions")
NOT_SHOWN = (
    "docs/design/",
    "docs/versions.md",
    "tests/additions/inside/",
    "tests/additions/test_options.py",
    "tests/additions/test_registries.py",
)
"""Places among those shown that are not looked at: notes on the code itself, the names that moved, additions to the
product itself.
"""
PUBLIC = ("headrace.errors", "headrace.ext", "headrace.testing", "headrace_airflow.dags")
_NAMES = r"\([^)]*\)|[^\n#]*"
_IMPORT = re.compile(rf"^[ \t]*(?:from +(headrace[\w.]*) +import +({_NAMES})|import +(headrace[\w.]*))", re.MULTILINE)
_MENTION = re.compile(r"(?<!`)`(headrace\w*(?:\.\w+)+)")

Modules = dict[str, ast.Module]


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


def interior_imports(root: Path) -> Iterator[str]:
    """Names each import of a module that is not public, in what users copy: pages, examples, additions; and each module
    that a page names in its prose and that is not public.
    """
    files = [
        file
        for name in SHOWN_PLACES
        for file in ([root / name] if (root / name).is_file() else (root / name).rglob("*"))
    ]
    for file in sorted(files):
        place = str(file.relative_to(root))
        if file.suffix not in (".md", ".py") or place.startswith(NOT_SHOWN):
            continue
        text = file.read_text(encoding="utf-8")
        imports = [(match, module) for match in _IMPORT.finditer(text) for module in _imported_modules(root, match)]
        mentions = [(match, match[1]) for match in _MENTION.finditer(text)] if file.suffix == ".md" else []
        for match, module in imports + [
            (match, module_name) for match, module_name in mentions if _has_module(root, module_name)
        ]:
            if not any(f"{module}.".startswith(f"{public}.") for public in PUBLIC):
                line = text.count("\n", 0, match.start(0)) + 1
                yield f"{place}:{line}: {module} is not public: headrace, headrace.ext and headrace.testing are"


def _imported_modules(root: Path, match: re.Match[str]) -> Iterator[str]:
    """The modules that an import names; for ``headrace`` itself, those of its names that are modules."""
    module = match[1] or match[3]
    if module != "headrace":
        yield module
    for name in re.findall(r"\w+", match[2] or "") if module == "headrace" else ():
        path = f"headrace/{name}"
        if (root / "jobs" / path).is_dir() or (root / "jobs" / f"{path}.py").exists():
            yield path.replace("/", ".")


def _has_module(root: Path, name: str) -> bool:
    """Whether a dotted name leads into a room of the product: an entry point's group, or a figure, does not."""
    package, *parts = name.split(".")
    rooms = [root / room for room in PROGRAMS if Path(room).name == package]
    depth = 1 if any((room / f"{parts[0]}.py").exists() for room in rooms) else 2
    path = Path(*parts[:depth])
    return len(parts) >= depth and any((room / path).is_dir() or (room / f"{path}.py").exists() for room in rooms)


def broken_rules(root: Path) -> list[str]:
    """All that breaks a rule, each with its place."""
    rooms = read_modules(root, PROGRAMS)
    with_scripts = rooms | read_modules(root, SCRIPTS)
    return [
        *crowded_rooms(rooms),
        *ambiguous_classes(rooms),
        *docstrings_without_subject(with_scripts),
        *empty_names(rooms),
        *bad_sentences(root, rooms),
        *too_many_clumsy(with_scripts),
        *interior_imports(root),
    ]


if __name__ == "__main__":
    repository = Path(__file__).resolve().parent.parent
    problems = [*broken_rules(repository), *stale_errors(), *stale_stubs(), *stale_signatures()]
    problems += [*report_figures(repository), *report_names(repository)]
    print("\n".join(problems) if problems else "The house is in order.")
    sys.exit(bool(problems))
