"""docs/semantics.md says what the reference does, and has every section that the code and the tests cite."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks
from tests.docs.transcripts import epochs, start_operator, step

PAGE = DOCS / "semantics.md"
EXAMPLES = [block for block in blocks(PAGE) if block.language == "transcript"]
_NUMBER = r"[1-9]\d?\.\d{1,2}(?![.\d%])"
_CITATION = re.compile(rf"(?:semantics[,:]? |[(]){_NUMBER}[a-e]?(?:(?:, | and | to |; ){_NUMBER}[a-e]?)*")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"line {block.line}")
def test_examples_say_what_comes_out(block: Block) -> None:
    operator = start_operator(block)
    for epoch in epochs(block):
        assert step(operator, epoch.happens) == epoch.expected, f"semantics.md:{epoch.line}: {epoch.happens}"


def _prose(path: Path) -> Iterator[str]:
    """Comments and strings of a module, all of any other file."""
    text = path.read_text()
    if path.suffix != ".py":
        yield text
        return
    if not _CITATION.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.string


def _list_citations() -> Iterator[tuple[str, Path]]:
    files = [ROOT / "ARCHITECTURE.md"]
    for folder in ("jobs", "snapshots", "plugins", "scripts", "tests"):
        files += sorted((ROOT / folder).rglob("*.py"))
    for file in files:
        for text in _prose(file):
            for citation in _CITATION.findall(text):
                yield from ((number, file) for number in re.findall(_NUMBER, citation))


@pytest.mark.slow
def test_every_section_that_is_cited_exists() -> None:
    sections = set(re.findall(rf"^### ({_NUMBER}) \S", PAGE.read_text(), re.MULTILINE))
    citations = list(_list_citations())
    assert len(citations) > 150
    missing = {f"{number} in {file.relative_to(ROOT)}" for number, file in citations if number not in sections}
    assert not missing
