"""Habits of sentences that make readers stumble, as far as a machine sees them: in documents, docstrings and messages.

A *sentence* ends with ``.``, ``?``, ``!`` or ``;``, or with its paragraph, list item or table cell. Code, in backticks
or braces, is one word; what is indented below ``::`` is none. Messages are the literals of programs that have blanks in
them (errors, warnings, help of commands), SQL apart.

``python -m scripts.sentences --longer 25 docs/tutorial.md`` lists the sentences of documents that have more words than
that, the longest first; without a name those of all documents.
"""

import ast
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 45
LONG_WORDS = 25
MOST_LONG = 50
"""Sentences of documents that may have more than ``LONG_WORDS`` words. Only ever made smaller."""
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
_FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r"(?<=::\n)(?:[ \t]*\n| {4}.*(?:\n|$))+")
"""What stands indented below ``::``: code."""
_CODE = re.compile(r"``[^`]+``|`[^`]*`|\{[^{}]*\}|\S+ → \S+")
_NO_PROSE = re.compile(r"\(?select |=====")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*] |\d+\. |#+ |\||>)")
_END = re.compile(r"(?<=[.?!;])[\"')*]*\s+")

Place = tuple[str, int]


def bad_sentences(root: Path, trees: dict[str, ast.Module]) -> Iterator[str]:
    """What breaks a habit's rule in the documents below ``root`` and in the modules ``trees``, each with its place; and
    whether more sentences of documents are long than ``MOST_LONG``.
    """
    for (file, line), text in [*_documents(root), *_of_modules(trees)]:
        for sentence in _END.split(text):
            for wrong in _wrong(sentence):
                yield f"{file}:{line}: {wrong}: {sentence!r}"
    long = longer_sentences(root, LONG_WORDS)
    if len(long) > MOST_LONG:
        yield f"{len(long)} sentences of documents have more than {LONG_WORDS} words (at most {MOST_LONG}: list them)"


def _wrong(sentence: str) -> Iterator[str]:
    for habit, remedy in _HABITS.items():
        if found := habit.search(sentence):
            yield f"{found[0]!r} (write: {remedy})"
    words = len(sentence.split())
    if words > MOST_WORDS:
        yield f"a sentence of {words} words (at most {MOST_WORDS}: make it two)"


def _documents(root: Path) -> Iterator[tuple[Place, str]]:
    for name in DOCUMENTS:
        path = root / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.md")):
            text = _FENCED.sub(lambda code: "\n" * code[0].count("\n"), file.read_text(encoding="utf-8"))
            for line, part in _parts(text):
                yield (str(file.relative_to(root)), line), part


def _of_modules(trees: dict[str, ast.Module]) -> Iterator[tuple[Place, str]]:
    for file, tree in trees.items():
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
                text = _LITERAL.sub(lambda code: "\n" * code[0].count("\n"), _said(node))
                for line, part in _parts(text):
                    yield (file, node.lineno + line - 1), part


def _said(node: ast.Constant | ast.JoinedStr) -> str:
    """The text of a literal; a value in braces is one word."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_said(part) if isinstance(part, ast.Constant) else "X" for part in node.values)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items and cells of ``text`` with blanks in them, on one line each, with the number of their line."""
    begin, lines = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if (not line.strip() or _ITEM.match(line)) and lines:
            yield from ((begin, part) for part in _cells(" ".join(lines)))
            lines = []
        if line.strip():
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


def longer_sentences(root: Path, words: int) -> list[tuple[int, str, str]]:
    """Sentences of the documents below ``root`` with more than ``words``: how many, where, and the sentence."""
    placed = [(f"{file}:{line}", one) for (file, line), text in _documents(root) for one in _END.split(text)]
    long = [(len(one.split()), place, one) for place, one in placed if len(one.split()) > words]
    return sorted(long, key=lambda found: -found[0])


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--longer", type=int, default=LONG_WORDS, metavar="WORDS")
    parser.add_argument("documents", nargs="*", help="beginnings of names, such as docs/how-to")
    options = parser.parse_args()
    listed = longer_sentences(Path(__file__).resolve().parents[1], options.longer)
    shown = [one for one in listed if not options.documents or one[1].startswith(tuple(options.documents))]
    for number, place, sentence in shown:
        print(f"{place}: {number} words: {sentence}")
    print(f"{len(shown)} sentences of more than {options.longer} words")
    sys.exit()
