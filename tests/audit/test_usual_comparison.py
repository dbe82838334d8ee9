"""What is usual, and how far a version is from it: by figures alone."""

import math
from itertools import pairwise
from random import Random
from statistics import median

import pytest

import headrace as hr
from headrace.audit.store import ColumnMeasure, VersionMeasure, ViewMeasure
from headrace.audit.usual import compare_with_history
from headrace.distribute.column_figures import BlamedRows
from headrace.pipeline.quality import ExpectationView, Severity, UsualCheck

HOUR = 3_600_000_000
CURRENT = ExpectationView.CURRENT


def volume(records: int, duration: int | None = HOUR) -> VersionMeasure:
    return VersionMeasure("0" * 16, records, duration)


def column(rows: int, measure: ColumnMeasure) -> VersionMeasure:
    return VersionMeasure("0" * 16, rows, HOUR, {CURRENT: ViewMeasure(rows, {"c": measure})})


def nulls(missing: int, rows: int = 1000) -> VersionMeasure:
    return column(rows, ColumnMeasure(missing))


def texts(**counts: int) -> VersionMeasure:
    frequent = tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    return column(100, ColumnMeasure(0, frequent=frequent))


def numbers(quantiles: list[float]) -> VersionMeasure:
    return column(100, ColumnMeasure(0, quantiles=tuple(quantiles)))


def is_far(check: UsualCheck, version: VersionMeasure, *history: VersionMeasure) -> bool | str:
    finding = compare_with_history(check, version, history).finding
    return finding.severity is not None if finding.is_judged else "not judged"


@pytest.mark.parametrize(
    ("records", "duration", "far"),
    [(50, HOUR, False), (49, HOUR, True), (200, HOUR, False), (201, HOUR, True), (2400, 24 * HOUR, False)],
)
def test_volume_is_a_rate_within_a_factor(records: int, duration: int, far: bool) -> None:
    history = [volume(99), volume(10_000), volume(100), volume(100), volume(1), volume(7, None)]
    assert is_far(hr.usual_volume(within=2), volume(records, duration), *history) is far


def test_a_bound_is_exact() -> None:
    tenth = hr.usual_nulls("c", points=0.1)
    history = [nulls(missing) for missing in (1, 2, 200, 998, 999)]
    assert [is_far(tenth, nulls(missing), *history) for missing in (0, 201, 202)] == [False, False, True]
    assert is_far(hr.usual_volume(within=1.1), volume(110), *[volume(100)] * 5) is False


def test_only_the_last_versions_that_have_the_figure_count() -> None:
    check = hr.usual_nulls("c", points=5, versions=3, min_versions=3)
    old, few, other = nulls(900), nulls(9, rows=9), volume(1)
    assert is_far(check, nulls(100), old, old, old, old, nulls(0), few, other, nulls(0), nulls(1)) is True
    assert is_far(check, nulls(100), nulls(0), few, other, nulls(0)) == "not judged"
    assert is_far(check, nulls(9, rows=9), *[nulls(0)] * 5) == "not judged"
    distribution_check = hr.usual_distribution("c", distance=0.1, min_versions=1)
    sparse = column(100, ColumnMeasure(71, frequent=(("a", 29),)))
    assert (
        is_far(distribution_check, sparse, texts(a=100))
        == is_far(distribution_check, texts(a=100), sparse)
        == "not judged"
    )
    assert is_far(distribution_check, texts(a=100), numbers([1.0] * 19)) == "not judged", (
        "the type of the column has changed"
    )


def test_distance_of_text_is_the_share_that_has_another_value() -> None:
    check = hr.usual_distribution("c", distance=0.2, min_versions=3)
    history = [texts(a=60, b=30), texts(a=60, b=30), texts(z=100)]  # the rest are values that are not told apart
    assert compare_with_history(check, texts(a=60, b=30), history).finding.observed == 0
    comparison = compare_with_history(check, texts(a=40, b=25, c=25), history)
    assert (comparison.finding.observed, comparison.finding.severity) == (0.25, Severity.FAIL)
    assert comparison.blamed == BlamedRows("c", "text", "c")
    assert comparison.finding.said.startswith(
        "distribution of c (current): 0.250 from the usual (the median of 3 versions)"
    )


def test_distance_of_numbers_is_how_far_they_moved_beside_the_quartiles() -> None:
    check = hr.usual_distribution("c", distance=0.2, severity="warn", min_versions=3)
    usual = [float(number) for number in range(1, 20)]  # quartiles 10 apart
    history = [numbers(usual), numbers([1e9] * 19), numbers(usual)]
    higher, lower = numbers([value + 3 for value in usual]), numbers([value - 3 for value in usual])
    comparison = compare_with_history(check, higher, history)
    assert (comparison.finding.observed, comparison.finding.severity) == (0.3, Severity.WARN)
    assert comparison.blamed == BlamedRows("c", "above", 19.0)
    assert compare_with_history(check, lower, history).blamed == BlamedRows("c", "below", 1.0)
    assert is_far(check, numbers([value + 2 for value in usual]), *history) is False


def test_numbers_that_were_all_the_same_are_compared_by_how_many_differ() -> None:
    check = hr.usual_distribution("c", distance=0.2, min_versions=1)
    same = numbers([7.0] * 19)
    assert is_far(check, same, same) is False
    assert compare_with_history(check, numbers([7.0] * 14 + [8.0] * 5), [same]).finding.observed == pytest.approx(
        5 / 19
    )


def test_distances_are_those_of_plain_python_on_random_versions() -> None:
    random = Random(4)
    shares, moves = [], []
    for _ in range(200):
        counts = [{text: random.randint(0, 33) for text in "abc"} for _ in range(6)]
        *past, now = [{text: number / 100 for text, number in one.items()} for one in counts]
        rest = [1 - sum(one.values()) for one in (*past, now)]
        differences = [abs(now[text] - median(one[text] for one in past)) for text in "abc"]
        expected = (sum(differences) + abs(rest[-1] - median(rest[:-1]))) / 2
        *earlier_versions, version = [texts(**one) for one in counts]
        distance = compare_with_history(
            hr.usual_distribution("c", distance=0.5), version, earlier_versions
        ).finding.observed
        assert distance == pytest.approx(expected)
        shares.append(distance)
        *old, new = [sorted(random.gauss(0, 1) for _ in range(19)) for _ in range(6)]
        usual = [median(values) for values in zip(*old, strict=True)]
        moved_total = sum(abs(a - b) for a, b in zip(new, usual, strict=True)) / 19 / (usual[14] - usual[4])
        *history, last = map(numbers, (*old, new))
        finding = compare_with_history(hr.usual_distribution("c", distance=0.5), last, history).finding
        assert finding.observed == pytest.approx(moved_total)
        assert (finding.severity is not None) == (moved_total > 0.5)
        moves.append(finding.observed)
    assert len({*shares}) > 10
    assert all(math.isfinite(value) for value in moves)
    assert any(a != b for a, b in pairwise(moves))
