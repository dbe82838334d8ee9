"""Every wrong argument of what reads results and of what tests pipelines is one error that names it.

As ``tests/pipeline/test_mistakes.py``, for what needs a result to be called on.
"""

import inspect
import typing
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

import headrace as hr
import headrace.testing as ht
from headrace.errors import HeadraceError
from headrace.model.arguments import short_repr
from tests.pipeline.test_mistakes import WRONG, is_allowed

CLICKS = hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="0s")
PIPELINE = hr.Pipeline("clicks", CLICKS, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"))
ROW = {"user": "ann", "at": "2026-01-01T09:00:00Z"}


def calls_of_readers(root: str) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    reader = hr.open(root)["clicks"]
    yield hr.open, {"root": root}
    for view in (reader.current, reader.panes, reader.late, reader.rejected, reader.snapshots):
        yield view, {"at": "main", "where": "true", "columns": ["epoch"]}
    yield from (
        (reader.log, {"limit": 3, "before": 9}),
        (reader.show, {"snapshot": "main"}),
        (reader.graph, {"limit": 3, "before": 9}),
        (reader.plan, {"pipeline": PIPELINE, "at": "main"}),
        (lambda limit: reader.diff("main", "main", limit=limit), {"limit": 3}),
        (reader.read, {"view": "panes", "at": "main", "where": "true", "columns": ["epoch"]}),
        (reader.files, {"view": "panes", "at": "main", "verify": False}),
        (reader.explain, {"key": "ann", "pipeline": PIPELINE, "stage": 1, "at": "main"}),
        (lambda to, branch: reader.rollback(to=to, branch=branch, dry_run=True), {"to": "beginning", "branch": "main"}),
        (reader.expire, {"keep_last": 3, "keep_for": "30d", "keep_tags": True, "dry_run": True}),
        (reader.fsck, {"deep": False, "repair": False}),
        (reader.plot, {"at": "main", "epochs": 3}),
        (reader.promote, {"branch": "trial", "patch": True, "dry_run": True, "limit": 3}),
    )
    rows = reader.current()
    yield rows.head, {"n": 1}
    yield lambda **options: [*rows.batches(**options)], {"order": "n", "limit": 1}
    yield rows.first, {"limit": 1, "order": "n"}


def calls_of_tests() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    result = ht.run(PIPELINE, [ht.rows(ROW)])
    yield ht.run, {"pipeline": PIPELINE, "steps": [ht.rows(ROW)], "executor": "local"}
    yield lambda record, of="source": ht.run(PIPELINE, [ht.rows(record, of=of)]), {"record": ROW, "of": "source"}
    yield ht.watermark, {"to": "13:00", "of": None}
    yield ht.processing_time, {"to": "13:00"}
    yield ht.fingerprint, {"pipeline": PIPELINE}
    yield ht.signal, {"name": "go", "key": ["ann"]}
    yield lambda step: ht.together(ht.end(), step), {"step": ht.end()}
    for holds in (ht.assert_panes, ht.assert_current, ht.assert_late, ht.assert_rejected):
        yield holds, {"result": result, "expected": []}


def refuse(call: Callable[..., Any], good: dict[str, Any]) -> Iterator[str]:
    """What is wrong with how ``call`` refuses wrong values, one argument after another."""
    name = getattr(call, "__name__", "call")
    try:
        hints = typing.get_type_hints(call)
    except NameError:
        hints = {}
    for parameter in good:
        known_parameters = inspect.signature(call).parameters
        annotation = hints.get(parameter, Any) if parameter in known_parameters else Any
        for value in WRONG:
            written_text = f"{name}({parameter}={short_repr(value)})"
            try:
                call(**{**good, parameter: value})
            except HeadraceError as error:
                if not any(part in str(error) for part in (parameter, f"{name}(", short_repr(value), str(value))):
                    yield f"{written_text} is refused without naming it: {error}"
            except AssertionError:
                continue  # an expectation that does not hold
            except Exception as error:
                yield f"{written_text} raises {error!r} from the inside"
            else:
                if not is_allowed(annotation, value):
                    yield f"{written_text} is taken, which {annotation} does not allow"


@pytest.mark.slow
def test_readers_name_what_is_wrong(deployment: ht.TemporaryDeployment) -> None:
    deployment.land(PIPELINE, ROW)
    deployment.run(PIPELINE)
    hr.open(deployment.root)["clicks"].fork("main", "trial")
    problems = [text for call, good in calls_of_readers(deployment.root) for text in refuse(call, good)]
    assert "\n".join(problems) == ""


def test_tests_name_what_is_wrong() -> None:
    assert [text for call, good in calls_of_tests() for text in refuse(call, good)] == []


def test_a_pipeline_that_has_not_run_is_named(deployment: ht.TemporaryDeployment) -> None:
    deployment.land(PIPELINE, ROW)
    deployment.run(PIPELINE)
    for name in [each for each in WRONG if isinstance(each, str)]:
        with pytest.raises(HeadraceError, match="there are clicks"):
            hr.open(deployment.root)[name]
