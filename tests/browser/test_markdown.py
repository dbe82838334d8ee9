"""No value of data is Markdown: what forms, approvals and descriptions quote is drawn by Airflow's own renderer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from selenium.webdriver.remote.webdriver import WebDriver

from headrace.this_process import in_one_line
from headrace_airflow import markdown
from headrace_airflow.markdown import ChangedRows, Proposal, Sentence
from tests.browser.markdown_renderer import Element, MarkdownRenderer, airflow_markdown
from tests.reference.strategies import examples

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

_AT_ONCE: Final = 200
"""Texts that the browser draws in one call: a call takes longer than a text."""
_OF_MARKDOWN: Final = [
    *"\\`*_{}[]()<>#+-=.!|~^&:;@/'\"$%,? \n\t\r\0",
    *(
        "![p](http://x.y/z)",
        "http://x.y",
        "https://",
        "www.",
        "a@b.co",
        "mailto:a@b.co",
        "<!--",
        "<b>",
        "&#124;",
        "&amp;",
    ),
    *("\\|", "\\\\|", "``", "```", "| a | b |", "|---|", "[^1]", "[x]: http://y", "1. ", "1) ", "- [ ] ", "    "),
    *("~~", "**", "__", "\u202e", "\u200b", "\xa0", "é", "ü", "中", "𝄞", "0", "7", "a", "total = 5"),
]
_TEXTS: Final = st.lists(
    st.one_of(st.sampled_from(_OF_MARKDOWN), st.characters(codec="utf-8"), st.sampled_from("abc 019")), max_size=12
).map("".join)
_FORGED_TEXT: Final = "a\\|500 → 501 | ![p](http://127.0.0.1:1/p)\n| **x**"


@pytest.fixture(scope="module")
def renderer(driver: WebDriver) -> Iterator[MarkdownRenderer]:
    with airflow_markdown(driver) as renderer_found:
        yield renderer_found


def test_the_renderer_is_that_of_pages(renderer: MarkdownRenderer) -> None:
    """Else the tests below say nothing."""
    pages = renderer.draw(["a **b** ![p](http://x.y/z)", "www.x.y", "| a |\n|---|\n| b |", "~~x~~", "<b>y</b>"])
    tags = [{element.tag for element in page.all()} - {"page", "p"} for page in pages]
    assert tags == [{"strong", "img"}, {"a"}, {"table", "thead", "tbody", "tr", "th", "td"}, {"del"}, set()]


def _holds(
    renderer: MarkdownRenderer,
    values: Sequence[str],
    write: Callable[[str], str],
    check: Callable[[Element, str], None],
) -> None:
    for value, page in zip(values, renderer.draw([write(value) for value in values]), strict=True):
        try:
            check(page, value)
        except AssertionError as error:
            error.add_note(f"of {value!r}, which is written as {write(value)!r}")
            raise


def _tags(page: Element) -> list[str]:
    return [element.tag for element in page.all()][1:]


_batches = st.lists(_TEXTS, min_size=_AT_ONCE, max_size=_AT_ONCE)
_some = settings(
    examples(50, fewest=4),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # of a batch, the one that is wrong is named
)


@pytest.mark.hypothesis
@_some
@given(values=_batches)
def test_text_of_a_paragraph_is_drawn_as_it_is(renderer: MarkdownRenderer, values: list[str]) -> None:
    def check(page: Element, value: str) -> None:
        assert page.text == f"Before {in_one_line(value)} after."
        assert {*_tags(page)} <= {"p", "code"}

    _holds(renderer, values, lambda value: f"Before {markdown.escaped_text(value)} after.", check)


@pytest.mark.hypothesis
@_some
@given(values=_batches)
def test_text_at_the_beginning_of_a_line_is_drawn_as_it_is(renderer: MarkdownRenderer, values: list[str]) -> None:
    def check(page: Element, value: str) -> None:
        assert page.text == in_one_line(value)
        assert {*_tags(page)} <= {"p", "code"}

    _holds(renderer, values, markdown.escaped_text, check)


@pytest.mark.hypothesis
@_some
@given(values=_batches)
def test_a_value_in_a_table_stays_in_its_cell(renderer: MarkdownRenderer, values: list[str]) -> None:
    def write(value: str) -> str:
        return "\n".join(
            markdown.table_lines(["change", value], [["changed", markdown.value_as_code(value)], ["added", "x"]])
        )

    def check(page: Element, value: str) -> None:
        shown_text = in_one_line(value)
        rows = [[cell.text for cell in row.all() if cell.tag in ("th", "td")] for row in page.all() if row.tag == "tr"]
        assert rows == [["change", shown_text], ["changed", shown_text or "(empty)"], ["added", "x"]]
        assert {*_tags(page)} <= {"table", "thead", "tbody", "tr", "th", "td", "code"}

    _holds(renderer, values, write, check)


@pytest.mark.hypothesis
@_some
@given(values=_batches)
def test_no_line_ends_a_block_of_lines(renderer: MarkdownRenderer, values: list[str]) -> None:
    def check(page: Element, value: str) -> None:
        assert _tags(page) == ["pre", "code"]
        assert page.text.strip("\n") == f"first\n{in_one_line(value)}\nlast"

    _holds(
        renderer, values, lambda value: "\n".join(markdown.fenced_block(["first", in_one_line(value), "last"])), check
    )


def test_what_an_approver_sees_is_what_the_data_is(renderer: MarkdownRenderer) -> None:
    """A value looks as if the table said other numbers, and would have the browser of the person call out."""
    key = {"shop": _FORGED_TEXT, "window_start": "2026-11-20 10:00:00+00:00"}
    row_before, row_after = (
        {"total": total, "pane_index": 0, "timing": "ON_TIME", "epoch": 3} for total in (500, 999_999)
    )
    change = {"kind": "changed", "key": key, "before": row_before, "after": row_after}
    counts = {"added": 0, "changed": 1}
    shown_text = Proposal.from_parts([Sentence(f"Output {_FORGED_TEXT}:"), ChangedRows(counts, [change])])
    (page,) = renderer.draw([shown_text.markdown])
    cells = [element.text for element in page.all() if element.tag in ("th", "td")]
    assert cells == [
        *("change", "shop", "window_start", "total"),
        *("changed", in_one_line(_FORGED_TEXT), "2026-11-20 10:00:00+00:00", "500 → 999999"),
    ]
    assert {element.address for element in page.all()} == {None}
    assert shown_text.lines == (
        f"Output {in_one_line(_FORGED_TEXT)}:",
        "Readers would see 0 rows added, 1 rows changed.",
        'changed: shop = "a\\\\|500 → 501 | ![p](http://127.0.0.1:1/p)\\n| **x**", '
        'window_start = "2026-11-20 10:00:00+00:00", total = 500 → 999999',
    )


def test_of_a_long_value_people_see_the_beginning(renderer: MarkdownRenderer) -> None:
    (page,) = renderer.draw([markdown.value_as_code("|" * 5_000)])
    assert page.text == f"{'|' * 300}… (5,000 characters)"


@pytest.mark.parametrize(
    ("value", "shown_text", "is_code"),
    [(None, "(NULL)", False), ("", "(empty)", False), ("None", "None", True), ("(NULL)", "(NULL)", True)],
)
def test_what_is_missing_looks_like_no_value(
    renderer: MarkdownRenderer, value: str | None, shown_text: str, is_code: bool
) -> None:
    change = {"kind": "added", "key": {"k": value}, "before": None, "after": {"n": 1}}
    (page,) = renderer.draw([Proposal.from_parts([ChangedRows({"added": 1}, [change])]).markdown])
    cell = [element for element in page.all() if element.tag == "td"][1]
    assert (cell.text, "code" in _tags(cell)) == {None: ("(NULL)", False), "": ("(empty)", False)}.get(
        value, (value, True)
    )
