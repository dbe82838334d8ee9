"""The pages of the documentation, as a reader meets them: their headings and their blocks of code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_DIRECTIVE = re.compile(r"<!-- test: (?P<words>.+?) -->")


@dataclass(frozen=True)
class Block:
    """A fence: its ``language``, its ``text``, the ``line`` of its first line, and what a comment before it says of the
    test (``<!-- test: file delays.py -->``).
    """

    page: Path
    language: str
    text: str
    line: int
    directive: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that people read, but for the README, which has a test of its own."""
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> Iterator[Block]:
    """The fences of ``page`` in order."""
    directive: tuple[str, ...] = ()
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "html_block" and (match := _DIRECTIVE.search(token.content)):
            directive = tuple(match["words"].split())
        elif token.type == "fence":
            language, *_ = token.info.split() or [""]
            yield Block(page, language, token.content, (token.map or [0])[0] + 2, directive)
            directive = ()
        elif token.type == "paragraph_open":
            directive = ()
