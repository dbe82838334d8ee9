"""The figures of the Dataflow paper by their numbers: as drawn, from the reference and from Spark."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from headrace_lab.conformance.cases import Case
from headrace_lab.conformance.on_reference import ReferenceExecutor
from headrace_lab.conformance.replay import CaseReplay
from headrace_lab.paper_figures import Box, Picture, Point, boxes, svg
from scripts.figures import FOLDER, FigureError, file_name, main, pictures
from scripts.paper_example import POINTS, clock

pytestmark = pytest.mark.slow

VALUES = {
    5: [],
    6: [51],
    7: [12, 22, 33, 51],
    8: [12, 10, 11, 18],
    9: [12, 7, 11, 12, 9],
    10: [14, 22, 3, 12],
    11: [5, 7, 14, 3, 22, 3, 14, 12],
    12: [5, 22, 3, 14, 12],
    13: [5, 7, 14, 3, 22, 3, 14, 12],
    14: [5, 7, 10, -7, -10, 25, 3, -5, -25, 39, -3, 12],
}
"""What each figure shows, in the order in which it was emitted; retractions are negative."""

LATE = {12: [14], 13: [14], 14: [39]}

TOPS = {
    6: ["12:09:20"],
    7: ["12:06:00", "12:07:00", "12:08:00", "12:09:00"],
    8: ["12:06:00", "12:07:00", "12:08:00", "12:09:00"],
    9: ["12:05:40", "12:06:27", "12:07:07", "12:08:20", "12:09:00"],
    10: ["12:09:20"] * 4,
    11: ["12:06:00"] * 2 + ["12:07:00"] * 2 + ["12:08:00"] * 2 + ["12:09:00"] * 2,
    12: ["12:05:58.8", "12:07:30", "12:07:40", "12:08:20", "12:09:21"],
    13: ["12:05:58", "12:06:00", "12:07:00", "12:07:00", "12:07:28", "12:08:00", "12:08:20", "12:09:00"],
    14: ["12:05:50", "12:06:00", "12:07:00", "12:07:36", "12:08:00", "12:08:20", "12:09:00"],
}
"""When each pane was emitted; the paper's drawing is exact to about two seconds."""

DISCARDING = (8, 9)
PANES_FIGURES = sorted(TOPS)


@pytest.fixture(scope="module")
def pictures_by_number() -> dict[int, Picture]:
    return pictures(ReferenceExecutor())


@pytest.fixture(scope="module")
def documents(pictures_by_number: dict[int, Picture]) -> dict[int, str]:
    return {number: svg(picture) for number, picture in pictures_by_number.items()}


def texts(document: str, *kinds: str) -> list[str]:
    """The texts of the groups whose ids are ``kind-N``, by N."""
    text_by_number: dict[int, str] = {}
    for group in ElementTree.fromstring(document).iter("{http://www.w3.org/2000/svg}g"):
        match = re.fullmatch(rf"(?:{'|'.join(kinds)})-(\d+)", group.get("id", ""))
        if match:
            text_by_number[int(match.group(1))] = "".join(group.itertext()).strip()
    return [text_by_number[number] for number in sorted(text_by_number)]


def numbers(document: str) -> list[int]:
    return [int(text.replace("\N{MINUS SIGN}", "-")) for text in texts(document, "pane", "retraction")]


@pytest.mark.parametrize("number", VALUES)
def test_a_figure_shows_the_papers_numbers(number: int, documents: dict[int, str]) -> None:
    document = documents[number]
    assert numbers(document) == VALUES[number]
    assert [int(text) for text in texts(document, "retraction") if text[0] != "\N{MINUS SIGN}"] == []
    assert texts(document, "late") == ["late"] * len(LATE.get(number, []))
    assert texts(document, "element") == ["5", "7", "3", "4", "3", "8", "3", "9", "8", "1"]


@pytest.mark.parametrize("number", VALUES)
def test_the_committed_figure_is_what_the_pipelines_give(number: int, documents: dict[int, str]) -> None:
    committed_text = (FOLDER / file_name(number)).read_text(encoding="utf-8")
    assert documents[number] == committed_text, "make figures"


@pytest.mark.spark
@pytest.mark.slow
def test_figures_on_spark_are_the_same(spark: SparkSession) -> None:
    from headrace_lab.conformance.on_spark import SparkExecutor

    found_by_number = {number: svg(picture) for number, picture in pictures(SparkExecutor(spark)).items()}
    assert {number: numbers(document) for number, document in found_by_number.items()} == VALUES
    assert [
        n for n, document in found_by_number.items() if document != (FOLDER / file_name(n)).read_text("utf-8")
    ] == []


@pytest.mark.parametrize("number", PANES_FIGURES)
def test_panes_end_where_the_paper_draws_it(number: int, pictures_by_number: dict[int, Picture]) -> None:
    pane_ends = [box.until for box in boxes(POINTS, pictures_by_number[number].emissions)]
    expected = [clock(top) for top in TOPS[number]]
    assert [abs(a - b) <= 2_000_000 for a, b in zip(pane_ends, expected, strict=True)] == [True] * len(expected)


@pytest.mark.parametrize("number", sorted(LATE))
def test_late_panes_are_those_behind_the_watermark(number: int, pictures_by_number: dict[int, Picture]) -> None:
    panes = [emission.pane for emission in pictures_by_number[number].emissions]
    assert [p.values[0] for p in panes if p.timing == "LATE" and not p.is_retraction] == LATE[number]


def points_inside(points: Iterable[Point], box: Box, earlier: Sequence[Box]) -> list[Point]:
    """The points in ``box``; one on its lower edge only if no earlier box ends there."""
    on_edge = all(other.until != box.since for other in earlier)
    return [
        point
        for point in points
        if box.window.start <= point.event_time < box.window.end
        and (box.since < point.arrival <= box.until or (on_edge and point.arrival == box.since))
    ]


@pytest.mark.parametrize("number", PANES_FIGURES)
def test_rectangles_hold_the_elements_that_their_values_sum(
    number: int, pictures_by_number: dict[int, Picture]
) -> None:
    picture = pictures_by_number[number]
    values = [emission.pane.values[0] for emission in picture.emissions if not emission.pane.is_retraction]
    all_boxes = boxes(POINTS, picture.emissions)
    points_of_boxes = [points_inside(POINTS, box, all_boxes[:index]) for index, box in enumerate(all_boxes)]
    assert sorted(p.arrival for points in points_of_boxes for p in points) == sorted(p.arrival for p in POINTS)
    for box, value, points in zip(all_boxes, values, points_of_boxes, strict=True):
        window_points = [
            p for p in POINTS if box.window.start <= p.event_time < box.window.end and p.arrival <= box.until
        ]
        assert sum(p.value for p in (points if number in DISCARDING else window_points)) == value


def test_retractions_leave_the_sum_of_everything(documents: dict[int, str]) -> None:
    assert sum(VALUES[14]) == sum(point.value for point in POINTS)
    assert sum(numbers(documents[14])) == 51


def test_a_picture_always_gives_the_same_document(documents: dict[int, str]) -> None:
    assert documents[14] == svg(pictures(ReferenceExecutor())[14])


def test_the_command_writes_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "figures"
    main(["--executor", "reference", "--out", str(folder)])
    assert sorted(file.name for file in folder.iterdir()) == [file_name(number) for number in VALUES]
    assert "10 figures" in capsys.readouterr().out


def test_a_pipeline_that_does_not_run_is_named() -> None:
    class BrokenExecutor:
        def replay(self, cases: Sequence[Case]) -> Iterable[CaseReplay]:
            return [CaseReplay(error="no more water") for _ in cases]

    with pytest.raises(FigureError, match="figure 6: no more water"):
        pictures(BrokenExecutor())


def test_the_page_of_the_figures_shows_them_all() -> None:
    shown_files = re.findall(r"!\[[^\]]+\]\((\w+\.svg)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert shown_files == [file_name(number) for number in VALUES]
