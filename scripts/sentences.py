"""Habits of sentences that make readers stumble, as far as a machine sees them: in documents, docstrings and messages.

A *sentence* ends with ``.``, ``?``, ``!`` or ``;``, or with its paragraph, list item or table cell. Code, in backticks
or braces, is one word; what is indented below ``::`` is none. Messages are the literals of programs that have blanks in
them (errors, warnings, help of commands), SQL apart. A sentence of a docstring is *clumsy* if it is long, or begins
with a word that refers to something before it.

``python -m scripts.sentences --longer 25 docs/tutorial.md`` lists the sentences of documents that have more words than
that, the longest first; without a name those of all documents. ``--docstrings jobs/headrace/kernel`` lists the clumsy
ones of docstrings, ``--messages`` the long ones of messages.
"""

import ast
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.house_arrows import parse_text

MOST_WORDS = 45
LONG_WORDS = 25
MOST_LONG = 3
"""Sentences of documents that may have more than ``LONG_WORDS`` words. Only ever made smaller."""
MOST_CLUMSY = 0
"""Sentences of docstrings that may be clumsy. Only ever made smaller."""
MOST_LONG_MESSAGES = 0
"""Sentences of messages that may have more than ``LONG_WORDS`` words. Only ever made smaller."""
PROGRAMS = ("jobs/headrace", "lab/headrace_lab", "snapshots/headrace_snapshots", "plugins/headrace_airflow")
SCRIPTS = ("scripts", "dags")
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "examples", "benchmarks")
HABITS = {
    r"anew": "again",
    r"whoever|who reads": "name the reader, the writer, the caller",
    r"of (?:then|now)": "old, current, at that time",
    r"(?:go|goes|gone|going) on from": "continue from",
    r"there is none of": "has no ..., without",
    r"what (?:[^\s,;:]+ ){1,8}that (?:[^\s,;:]+ ){1,8}that": "two sentences",
}
_HABITS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): remedy for words, remedy in HABITS.items()}
_CODE_BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r"(?<=::\n)(?:[ \t]*\n| {4}.*(?:\n|$))+")
"""What stands indented below ``::``: code."""
_CODE = re.compile(r"``[^`]+``|`[^`]*`|\{[^{}]*\}|\S+ → \S+")
_NO_PROSE = re.compile(r"\(?select |update (?:X|\S+) set |create table |case when |=====")
_RULE = re.compile(r"\s*-{3,}\s*")
_NO_SUBJECT = re.compile(r"(?:of|those|as|whose)\b(?!-of\b)", re.IGNORECASE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*] |\d+\. |#+ |\||>)")
_END = re.compile(r"(?<=[.?!;])[\"')*]*\s+")

Place = tuple[str, int]
LongSentence = tuple[int, str, str]
"""The number of its words, its place, and the sentence."""


def bad_sentences(root: Path, trees: dict[str, ast.Module]) -> Iterator[str]:
    """What breaks a habit's rule in the documents below ``root`` and in the modules ``trees``, each with its place. It
    says so, too, if more sentences are long or clumsy than may be.
    """
    for (file, line), text in [*_documents(root), *_of_modules(trees)]:
        for sentence in _END.split(text):
            for wrong in _wrong(sentence):
                yield f"{file}:{line}: {wrong}: {sentence!r}"
    long = longer_sentences(root, LONG_WORDS)
    if len(long) > MOST_LONG:
        yield f"{len(long)} sentences of documents have more than {LONG_WORDS} words (at most {MOST_LONG}: list them)"
    messages = long_messages(trees)
    if len(messages) > MOST_LONG_MESSAGES:
        yield f"{len(messages)} sentences of messages have more than {LONG_WORDS} words (at most {MOST_LONG_MESSAGES})"


def too_many_clumsy(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Says so if more sentences of docstrings in the modules ``trees`` are clumsy than ``MOST_CLUMSY``."""
    clumsy = clumsy_sentences(trees)
    if len(clumsy) > MOST_CLUMSY:
        yield f"{len(clumsy)} sentences of docstrings are clumsy (at most {MOST_CLUMSY}: list them)"


def read_modules(root: Path, folders: tuple[str, ...]) -> dict[str, ast.Module]:
    """The syntax trees of all modules in ``folders`` below ``root``, by path."""
    files = (file for folder in folders for file in sorted((root / folder).rglob("*.py")))
    return {str(file.relative_to(root)): parse_text(file.read_text(encoding="utf-8")) for file in files}


def _wrong(sentence: str) -> Iterator[str]:
    for habit, remedy in _HABITS.items():
        if match := habit.search(sentence):
            yield f"{match[0]!r} (write: {remedy})"
    words = len(sentence.split())
    if words > MOST_WORDS:
        yield f"a sentence of {words} words (at most {MOST_WORDS}: make it two)"


def _documents(root: Path) -> Iterator[tuple[Place, str]]:
    for name in DOCUMENTS:
        path = root / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.md")):
            text = _CODE_BLOCK.sub(lambda code: "\n" * code[0].count("\n"), file.read_text(encoding="utf-8"))
            for line, part in _parts(text):
                yield (str(file.relative_to(root)), line), part


def _of_modules(trees: dict[str, ast.Module], *, docstrings: bool | None = None) -> Iterator[tuple[Place, str]]:
    """Texts of literals with their places: those that are ``docstrings``, or those that are none; by default all."""
    for file, tree in trees.items():
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inner:
                continue
            if docstrings is None or docstrings == (id(node) in statements):
                text = _LITERAL.sub(lambda code: "\n" * code[0].count("\n"), _literal_text(node))
                for line, part in _parts(text):
                    yield (file, node.lineno + line - 1), part


def _literal_text(node: ast.Constant | ast.JoinedStr) -> str:
    """The text of a literal; a value in braces is one word."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_literal_text(part) if isinstance(part, ast.Constant) else "X" for part in node.values)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items and cells of ``text`` with blanks in them, on one line each, with the number of their line."""
    begin, lines = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        is_rule = _RULE.fullmatch(line) is not None
        if (not line.strip() or is_rule or _ITEM.match(line)) and lines:
            yield from ((begin, part) for part in _cells(" ".join(lines)))
            lines = []
        if line.strip() and not is_rule:
            begin, lines = (begin, [*lines, line]) if lines else (number, [line])


def _cells(text: str) -> Iterator[str]:
    if _NO_PROSE.match(text):
        return
    plain = _CODE.sub("X", _LINK.sub(r"\1", text))
    parts = (
        plain.split("|")
        if text.lstrip().startswith("|")
        else [_ITEM.sub("", plain, count=1)]
        if _ITEM.match(plain)
        else [plain]
    )
    yield from (" ".join(part.split()) for part in parts if " " in part.strip())


def longer_sentences(root: Path, words: int) -> list[LongSentence]:
    """Sentences of the documents below ``root`` with more than ``words``, the longest first."""
    return [sentence for sentence in _longest_first(_documents(root)) if sentence[0] > words]


def clumsy_sentences(trees: dict[str, ast.Module]) -> list[LongSentence]:
    """Sentences of docstrings that are long or begin without a subject, the longest first."""
    sentences = _longest_first(_of_modules(trees, docstrings=True))
    return [one for one in sentences if one[0] > LONG_WORDS or _NO_SUBJECT.match(one[2])]


def long_messages(trees: dict[str, ast.Module]) -> list[LongSentence]:
    """Sentences of messages with more than ``LONG_WORDS`` words, the longest first."""
    return [one for one in _longest_first(_of_modules(trees, docstrings=False)) if one[0] > LONG_WORDS]


def _longest_first(texts: Iterable[tuple[Place, str]]) -> list[LongSentence]:
    placed_sentences = [(f"{file}:{line}", one) for (file, line), text in texts for one in _END.split(text)]
    return sorted(
        ((len(one.split()), place, one) for place, one in placed_sentences), key=lambda sentence: -sentence[0]
    )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--longer", type=int, default=LONG_WORDS, metavar="WORDS")
    parser.add_argument("--docstrings", action="store_true", help="clumsy sentences of docstrings instead")
    parser.add_argument("--messages", action="store_true", help="long sentences of messages instead")
    parser.add_argument("places", nargs="*", help="beginnings of names, such as docs/how-to")
    options = parser.parse_args()
    repository = Path(__file__).resolve().parents[1]
    if options.docstrings:
        sentences = clumsy_sentences(read_modules(repository, (*PROGRAMS, *SCRIPTS)))
    elif options.messages:
        sentences = long_messages(read_modules(repository, PROGRAMS))
    else:
        sentences = longer_sentences(repository, options.longer)
    shown_sentences = [one for one in sentences if not options.places or one[1].startswith(tuple(options.places))]
    for number, place, sentence in shown_sentences:
        print(f"{place}: {number} words: {sentence}")
    print(f"{len(shown_sentences)} sentences")
    sys.exit()
