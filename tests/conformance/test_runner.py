"""The runner itself: what it catches, what it says, and its exit codes."""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import Window
from headrace.cli.main import app
from headrace.errors import FixConfigError
from headrace_lab.conformance import runner
from headrace_lab.conformance.cases import Case
from headrace_lab.conformance.on_reference import ReferenceExecutor
from headrace_lab.conformance.replay import CaseReplay, StepOutcome
from headrace_lab.conformance.runner import CaseStatus, all_required_passed, conformance, render_text, run_file
from headrace_lab.sizes import set_sizes


def main(arguments: list[str]) -> int:
    """The exit code of the command with these arguments."""
    with pytest.raises(SystemExit) as end:
        app(["conformance", *arguments])
    assert isinstance(end.value.code, int)
    return end.value.code


CASE: dict[str, Any] = {
    "name": "two_panes",
    "window": {"type": "fixed", "size": 10, "offset": 0},
    "trigger": {"type": "repeatedly", "trigger": {"type": "after_count", "count": 1}},
    "accumulation": "DISCARDING",
    "allowed_lateness": 0,
    "on_time_behavior": "FIRE_IF_NON_EMPTY",
    "steps": [
        {"op": "input", "elements": [{"value": 1, "ts": 1}, {"value": 12, "ts": 12}]},
        {
            "op": "expect",
            "panes": [
                {"window": [0, 10], "values": [1], "timing": "EARLY", "index": 0, "is_last": False},
                {"window": [10, 20], "values": [12], "timing": "EARLY", "index": 0, "is_last": False},
            ],
            "ordered": True,
        },
        {"op": "watermark", "to": 10},
        {"op": "input", "elements": [{"value": 2, "ts": 2}]},
        {"op": "dropped", "late": 1, "closed": 0},
        {"op": "output_watermark", "equals": 10},
        {"op": "assign", "ts": 3, "windows": [[0, 10]]},
        {"op": "combine", "fn": "mean", "groups": [[1, 2], []], "equals": 1.5},
    ],
}


def case(**changes: Any) -> dict[str, Any]:
    return {**CASE, **changes}


def steps(index: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**step, **changes} if i == index else step for i, step in enumerate(CASE["steps"])]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def to_file(*cases: dict[str, Any]) -> Path:
        file = tmp_path / "cases.json"
        file.write_text(json.dumps({"schema_version": 1, "cases": list(cases)}))
        return file

    return to_file


class Lying:
    """The reference, with one outcome of each case changed."""

    def __init__(self, change: Callable[[StepOutcome], StepOutcome]) -> None:
        self._change = change

    def replay(self, cases: Sequence[Case]) -> Iterable[CaseReplay]:
        for replay in ReferenceExecutor().replay(cases):
            yield CaseReplay(tuple(self._change(outcome) for outcome in replay.outcomes))


def panes(change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Lying:
    return Lying(lambda outcome: replace(outcome, panes=change(outcome.panes)))


LIES = {
    "a pane is missing": (panes(lambda ps: ps[1:]), "Unmatched output"),
    "a pane comes twice": (panes(lambda ps: ps + ps[:1]), "Unexpected output"),
    "the order is wrong": (panes(lambda ps: ps[::-1]), "Wrong order"),
    "an index is wrong": (panes(lambda ps: tuple(replace(p, index=p.index + 1) for p in ps)), "Unmatched output"),
    "a retraction": (panes(lambda ps: tuple(replace(p, is_retraction=True) for p in ps)), "Unmatched output"),
    "a value is wrong": (panes(lambda ps: tuple(replace(p, values=((99,),)) for p in ps)), "Unmatched output"),
    "a drop is not counted": (Lying(lambda outcome: replace(outcome, dropped={})), "expected drops"),
    "the output watermark": (Lying(lambda o: replace(o, output_watermarks=(0,))), "expected output watermarks"),
    "an answer is empty": (Lying(lambda o: replace(o, answer=frozenset())), "expected windows"),
}


def test_the_truth_passes(write: Callable[..., Path]) -> None:
    (result,) = run_file(write(CASE), ReferenceExecutor())
    assert (result.status, result.reason) == (CaseStatus.PASSED, "")


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_fails_and_says_what_differs(lie: str, write: Callable[..., Path]) -> None:
    executor, message = LIES[lie]
    (result,) = run_file(write(CASE), executor)
    assert result.status is CaseStatus.FAILED
    assert message in result.reason
    assert "-->" in result.reason


def test_a_missing_pane_stands_beside_the_one_that_is_most_like_it(write: Callable[..., Path]) -> None:
    (result,) = run_file(write(CASE), LIES["a value is wrong"][0])
    lines = result.reason.splitlines()
    assert "Unmatched output: 2 of 2 expected panes" in lines
    assert "Unexpected output: 2 of 2 panes" in lines
    first = lines.index("  - expected window=[0, 10) values=[1] timing=EARLY index=0 is_last=False")
    assert lines[first + 1].startswith("  + found    window=[0, 10) key=k values=[99] timestamp=9 timing=EARLY index=0")
    assert lines[first + 2] == "      values: [1] expected, [99] found"


def test_output_may_appear_only_directly_before_an_expect(write: Callable[..., Path]) -> None:
    without_steps = [step for step in CASE["steps"] if step["op"] != "expect"]
    strict, at_end = run_file(
        write(case(steps=without_steps), case(name="e", steps=without_steps, collect="at_end")), ReferenceExecutor()
    )
    assert "Unexpected output" in strict.reason
    assert "end of the case" in at_end.reason


def test_expected_failures_pass_by_failing_as_told(write: Callable[..., Path]) -> None:
    wrong = steps(1, panes=[])
    results = run_file(
        write(
            case(name="as told", steps=wrong, expect_failure={"message": "unexpected OUTPUT"}),
            case(name="otherwise", steps=wrong, expect_failure={"message": "no such thing"}),
            case(name="not at all", expect_failure={"message": "Unexpected output"}),
        ),
        ReferenceExecutor(),
    )
    assert [result.status for result in results] == [CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.FAILED]


def test_panes_are_matched_even_if_the_first_expected_one_is_vague(write: Callable[..., Path]) -> None:
    vague = [{"window": [0, 10]}, {"window": [0, 10], "values": [1]}]
    input_steps = [
        {"op": "input", "elements": [{"value": 1, "ts": 1}]},
        {"op": "input", "elements": [{"value": 2, "ts": 2}]},
    ]
    raw = case(steps=[*input_steps, {"op": "expect", "panes": vague}], collect="at_end")
    (result,) = run_file(write(raw), ReferenceExecutor())
    assert result.status is CaseStatus.PASSED, result.reason


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"broken_on": ["normative"]}, CaseStatus.SKIPPED, "normative"),
        ({"window": {"type": "custom", "id": "validity"}}, CaseStatus.SKIPPED, "custom"),
        ({"trigger": {"type": "after_dinner"}}, CaseStatus.SKIPPED, "after_dinner"),
        ({"trigger": {"type": "after_count", "count": 0}}, CaseStatus.FAILED, "at least 1"),
        ({"window": {"type": "fixed"}}, CaseStatus.FAILED, "size"),
        ({"steps": [{"op": "wait"}]}, CaseStatus.FAILED, "wait"),
        ({"steps": steps(1, panes=[{"window": [0, 10], "indx": 0}])}, CaseStatus.FAILED, "indx"),
    ],
)
def test_what_cannot_be_run(changes: Any, status: CaseStatus, reason: str, write: Callable[..., Path]) -> None:
    results = run_file(write(case(**changes), case(name="next")), ReferenceExecutor())
    assert results[0].status is status
    assert reason in results[0].reason
    assert results[1].status is CaseStatus.PASSED


STAGE = {name: CASE[name] for name in ("window", "trigger", "accumulation", "allowed_lateness")} | {"combine": "sum"}
GIVEN_OUTPUT = {"name": "given", **STAGE}


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ([], "there is no output"),
        ([GIVEN_OUTPUT, GIVEN_OUTPUT], "another output has that name"),
        ([{**GIVEN_OUTPUT, "of": ["below"]}, {"name": "below", **STAGE}], "'below' is not one of"),
        ([GIVEN_OUTPUT, {"name": "net", "of": ["given"], "minus": ["taken"], **STAGE}], "'taken' is not one of given"),
        (
            [
                GIVEN_OUTPUT,
                {"name": "more", **STAGE},
                {**GIVEN_OUTPUT, "name": "net", "of": ["given"], "minus": ["more"]},
            ],
            "names more",
        ),
        ([{**GIVEN_OUTPUT, "combine": None}], "a combiner that gives one"),
        ([GIVEN_OUTPUT, {"name": "net", "of": ["given"], "only": "odd", **STAGE}], "panes have no attributes"),
        ([{**GIVEN_OUTPUT, "onlyy": "odd"}], "'onlyy' of a stage"),
    ],
)
def test_outputs_that_cannot_be_run(outputs: Any, reason: str, write: Callable[..., Path]) -> None:
    (result,) = run_file(write(case(kind="outputs", outputs=outputs, steps=steps(1, panes=[]))), ReferenceExecutor())
    assert result.status is CaseStatus.FAILED
    assert reason in result.reason


ROWS: dict[str, Any] = {"take": {"type": "top", "number": 1, "by": "value"}, "accumulation": "RETRACTING"}
ONE = {"op": "input", "elements": [{"value": 1, "ts": 1}]}
LEAVES = {"op": "expect", "panes": [{"window": [0, 10], "result": 1, "timestamp": 1, "timing": "EARLY"}]}


def rows(**changes: Any) -> dict[str, Any]:
    return case(**{"kind": "rows", "steps": [ONE, LEAVES], **ROWS, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"take": {"type": "last"}}, "take: type: 'last' is not one of newest, top, distinct"),
        ({"take": {"type": "top", "number": 0, "by": "value"}}, "write a whole number of at least 1"),
        ({"take": {"type": "newest", "order": "key"}}, "order: 'key' is not one of value"),
        ({"deduplicate": "20"}, "deduplicate: '20' is not an integer"),
        ({"accumulation": "ACCUMULATING"}, "a row that counts no more is withdrawn by retracting(...)"),
        ({"steps": [ONE, {**LEAVES, "ordered": True}]}, "rows leave in no order: leave ordered out"),
        ({"steps": [{"op": "assign", "ts": 3, "windows": [[0, 10]]}]}, "no steps assign, merge and combine"),
        ({"value_type": {"map": "number"}}, "value_type: 'number' is not one of string, int"),
        ({"value_type": {"set": "int"}}, "value_type: {'set': 'int'} is no type"),
        ({"columns": {"a": ["itme", "value", 0]}}, "unknown function 'itme'"),
        ({"columns": {"a": {"txt": "b"}}}, "columns: {'txt': 'b'} is no expression"),
        ({"steps": [{"op": "input", "elements": [{"value": [1], "ts": 1}]}]}, "a string, a number or a bool, not [1]"),
        ({"taek": {}}, "'taek' of the case"),
        ({"take": {**ROWS["take"], "deletd": "gone"}, "steps": [ONE]}, "'deletd' of what is taken"),
    ],
)
def test_what_gives_no_rows_is_told(changes: Any, reason: str, write: Callable[..., Path]) -> None:
    good, wrong = run_file(write(rows(name="good"), rows(**{"steps": [ONE], **changes})), ReferenceExecutor())
    assert (good.status, wrong.status) == (CaseStatus.PASSED, CaseStatus.FAILED)
    assert reason in wrong.reason


ROW_LIES = {
    "a row is missing": (panes(lambda ps: ps[1:]), "Unmatched output"),
    "a row comes twice": (panes(lambda ps: ps + ps[:1]), "Unexpected output"),
    "its window is another": (panes(lambda ps: tuple(replace(p, window=Window(0, 20)) for p in ps)), "Unmatched"),
    "it is withdrawn": (panes(lambda ps: tuple(replace(p, is_retraction=True) for p in ps)), "Unmatched output"),
    "its event time is another": (panes(lambda ps: tuple(replace(p, timestamp=2) for p in ps)), "Unmatched output"),
}


@pytest.mark.parametrize("lie", ROW_LIES)
def test_a_lie_about_rows_fails(lie: str, write: Callable[..., Path]) -> None:
    executor, message = ROW_LIES[lie]
    (result,) = run_file(write(rows()), executor)
    assert result.status is CaseStatus.FAILED
    assert message in result.reason


def test_an_error_of_the_executor_is_the_failure_of_its_case_alone(write: Callable[..., Path]) -> None:
    retraction_steps = [{"op": "input", "elements": [{"value": 1, "ts": 1, "retraction": True}]}]
    sessions = case(window={"type": "sessions", "gap": 5}, steps=retraction_steps)
    bad, good = run_file(write(sessions, case(name="good")), ReferenceExecutor())
    assert (bad.status, good.status) == (CaseStatus.FAILED, CaseStatus.PASSED)
    assert "sessions never split" in bad.reason


def test_exit_code_and_renderings(write: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    file = write(CASE, case(name="dialect", broken_on=["normative"]), case(name="wrong", steps=steps(4, late=7)))
    assert main([str(file)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    assert main([str(file), "--only", "*i*l*", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["skipped"], document["cases"][0]["name"]) == (1, "dialect")
    wrong = next(result for result in run_file(file, ReferenceExecutor()) if result.name == "wrong")
    assert render_text(wrong).splitlines()[0] == "FAILED  wrong"


class CutOff:
    """An executor that is stopped in its second case."""

    def replay(self, cases: Sequence[Case]) -> Iterator[CaseReplay]:
        yield from ReferenceExecutor().replay(cases[:1])
        raise KeyboardInterrupt


def test_a_run_that_is_cut_off_has_said_what_it_knows(
    write: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runner.EXECUTORS, "reference", CutOff)
    with pytest.raises(KeyboardInterrupt):
        conformance(write(CASE, case(name="again")))
    assert capsys.readouterr().out == f"PASSED  {CASE['name']}\n"


def test_a_skipped_case_that_is_no_dialect_does_not_count_as_passed(write: Callable[..., Path]) -> None:
    results = run_file(write(case(trigger={"type": "after_dinner"})), ReferenceExecutor())
    assert not all_required_passed(results)


def test_what_is_no_file_of_cases(
    tmp_path: Path, write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    for content in ("{", "[]", '{"schema_version": 2}'):
        other.write_text(content)
        assert main([str(other)]) == FixConfigError.exit_code
        assert "other.json" in capsys.readouterr().err
    assert main([str(tmp_path / "missing.json")]) == FixConfigError.exit_code
    assert main([str(write(CASE)), "--only", "nothing*"]) == FixConfigError.exit_code
    with pytest.raises(FixConfigError, match="no executor 'flink'"):
        conformance(write(CASE), executor="flink")


class Terminal(io.StringIO):
    """A stream that people look at, if it ``is_terminal``."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize(("is_terminal", "words"), [(False, "1 of 2 cases\n2 of 2 cases\n"), (True, "cases")])
def test_a_run_says_on_stderr_how_far_it_is_and_only_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_terminal: bool, words: str
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"schema_version": 1, "cases": [CASE, case(name="again")]}))
    terminal = Terminal(is_terminal=is_terminal)
    with set_sizes(conformance_line_seconds=0.0), redirect_stderr(terminal):
        assert conformance(path, output="json") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["passed"] == 2
    assert output.err == ""
    assert words in terminal.getvalue()
    assert is_terminal or terminal.getvalue() == words


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        (
            {"steps": steps(0, elements=[{"value": 1, "ts": 1}, {"value": 2}])},
            "step 1 (input): elements: element 2: .*ts",
        ),
        ({"steps": steps(0, elements=[{"value": 1, "ts": 10**30}])}, "element 1: ts: 1000"),
        ({"steps": steps(0, elements=[{"value": 1, "ts": 1, "retraction": "no"}])}, "retraction: 'no' is neither"),
        ({"steps": steps(1, panes=[{"window": [0, 10], "values": 1}])}, "pane 1: values: 1 is not a list"),
        ({"steps": steps(1, panes=[{"window": [0, 10], "timing": "ONTIME"}])}, "timing: 'ONTIME' is not one of EARLY"),
        ({"steps": steps(1, panes=[{"window": [0]}])}, r"window: \[0\] is not a window"),
        ({"steps": steps(4, lates=0)}, "step 5 (dropped): 'lates' is not a cause"),
        ({"steps": {}}, "steps: {} is not a list"),
        ({"window": {"type": "fixed", "size": 10.5}}, "window: size: 10.5 is not an integer"),
        ({"window": None}, "window: None is not an object"),
        ({"trigger": {"type": "after_any", "triggers": [{"type": "after_count"}]}}, "triggers: trigger 1: .*'count'"),
        (
            {"trigger": {"type": "after_percentile_watermark", "percentile": "most"}},
            "percentile: 'most' is not a number",
        ),
        ({"trigger": {"type": 5}}, "type: 5 is not text"),
        ({"accumulation": "ADDING"}, "accumulation: 'ADDING' is not one of DISCARDING"),
        ({"kind": "pipelines"}, "kind: 'pipelines' is not one of"),
        ({"columns": {"n": "count"}}, "having and columns read a result that is a number"),
        ({"combine": "sum", "columns": {"rate": ["/", "result"]}}, "columns: None is not one of"),
        ({"combine": "sum", "columns": {"rate": ["/", "result", "n"]}}, "there is no column 'n' of results"),
        (
            {"combine": "sum", "having": {"rate": "<", "value": 1}},
            "there is no column 'rate' of results; there are result",
        ),
        (
            {"combine": "sum", "having": {"value": 1}},
            "having: {'value': 1} is no comparison of one column with a value",
        ),
        ({"kind": "pipeline", "stages": [CASE], "between": {"key": "value", "value": "one"}}, "two stages, not 1"),
        ({"combine": "sum", "steps": steps(0, elements=[{"value": "a", "ts": 1}])}, "sum takes numbers, not 'a'"),
    ],
)
def test_what_is_not_of_the_schema_is_told_with_its_place(changes: Any, place: str, write: Callable[..., Path]) -> None:
    wrong, good = run_file(write(case(**changes), case(name="good")), ReferenceExecutor())
    assert (wrong.status, good.status) == (CaseStatus.FAILED, CaseStatus.PASSED)
    assert re.search(place.replace("(", r"\(").replace(")", r"\)"), wrong.reason), wrong.reason
    assert wrong.reason.startswith("case two_panes: ")


def test_a_field_that_the_schema_does_not_have_is_told(write: Callable[..., Path]) -> None:
    early = {"type": "after_watermark", "erly": {"type": "always"}}
    fails = case(name="fails", alowed_lateness=9, trigger=early)
    passes, failed_file = run_file(write(case(steps=steps(1, orderd=True)), fails), ReferenceExecutor())
    assert passes.status is CaseStatus.PASSED
    assert passes.reason == "the schema has no field 'orderd' of step 2 (expect): not read"
    assert "no field 'alowed_lateness' of the case, 'erly' of a trigger: not read" in failed_file.reason
    assert "Unmatched output" in failed_file.reason


@pytest.mark.parametrize(("same", "other"), [("NaN", "1.0"), ("Infinity", "-Infinity"), ("-Infinity", "NaN")])
def test_floats_that_are_no_numbers(same: str, other: str, tmp_path: Path) -> None:
    parts = {"op": "input", "elements": [{"value": float(same), "ts": 1}]}
    raws = []
    for value in (float(same), float(other)):
        for combine, fields in (("sum", {"result": value}), ("collect", {"values": [value]})):
            expected = {"op": "expect", "panes": [{"window": [0, 10], **fields}]}
            raws.append(case(name=f"{combine} is {value}", combine=combine, steps=[parts, expected]))
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"schema_version": 1, "cases": raws}))
    statuses = [result.status for result in run_file(file, ReferenceExecutor())]
    assert statuses == [CaseStatus.PASSED, CaseStatus.PASSED, CaseStatus.FAILED, CaseStatus.FAILED]


def test_a_name_is_of_one_case(write: Callable[..., Path]) -> None:
    first, second = run_file(write(CASE, CASE), ReferenceExecutor())
    assert (first.status, second.status) == (CaseStatus.PASSED, CaseStatus.FAILED)
    assert "case number 2 has the name of number 1" in second.reason


def test_what_is_no_case_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"schema_version": 1, "cases": [7, {}, CASE]}))
    seven, nameless, good = run_file(file, ReferenceExecutor())
    assert (seven.name, seven.reason) == ("case number 1", "a case is an object, not 7")
    assert (nameless.name, nameless.status, good.status) == ("case number 2", CaseStatus.FAILED, CaseStatus.PASSED)
    for cases in ("{}", "[]", "null"):
        file.write_text(f'{{"schema_version": 1, "cases": {cases}}}')
        assert main([str(file)]) == FixConfigError.exit_code
        assert "must be a list of at least one case" in capsys.readouterr().err


def test_whatever_an_executor_dies_of_is_the_failure_of_its_case_alone(write: Callable[..., Path]) -> None:
    mixed_case = case(combine="max", steps=steps(0, elements=[{"value": 1, "ts": 1}, {"value": "a", "ts": 1}]))
    wrong, good = run_file(write(mixed_case, case(name="good")), ReferenceExecutor())
    assert (wrong.status, good.status) == (CaseStatus.FAILED, CaseStatus.PASSED)
    assert "TypeError" in wrong.reason


EDGES = [{"op": "input", "elements": [{"from": "a", "to": "b", "ts": 1}]}, {"op": "expect", "panes": []}]
LOOP = {"start": {"a": 0}, "step": "sum", "combine": "least"}
ROUND = {"loop": LOOP, "window": {"type": "global"}, "trigger": {"type": "always"}, "steps": EDGES}
ROUND |= {"accumulation": "RETRACTING", "combine": None}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"loop": {**LOOP, "step": "product"}}, "loop: step: 'product' is not one of value, sum"),
        ({"loop": {**LOOP, "start": {}}}, 'loop: start: a start is "vertex", or says the value of at least one vertex'),
        ({"loop": {**LOOP, "combine": "sum"}}, "loop: combine: 'sum' is not one of least, greatest"),
        ({"loop": {**LOOP, "rounds": 0}}, "rounds"),
        ({"combine": "sum"}, "the results of a loop are its values: leave combine out"),
        (
            {
                "kind": "pipeline",
                "stages": [{**CASE, "loop": None}, ROUND],
                "between": {"key": "value", "value": "one"},
            },
            "a case with a loop has one stage, and is not of kind 'pipeline'",
        ),
        ({"accumulation": "DISCARDING"}, "discarding forgets the value of a vertex"),
        ({"window": {"type": "sessions", "gap": 5}}, "a loop takes GlobalWindows"),
        ({"steps": [{"op": "input", "elements": [{"from": "a", "ts": 1}]}]}, "element 1: there is no field 'to'"),
    ],
)
def test_what_is_not_a_loop_is_told_with_its_place(changes: Any, place: str, write: Callable[..., Path]) -> None:
    wrong, good = run_file(write(case(**{**ROUND, **changes}), case(name="good")), ReferenceExecutor())
    assert (wrong.status, good.status) == (CaseStatus.FAILED, CaseStatus.PASSED)
    assert place in wrong.reason


def test_a_field_of_a_loop_or_an_edge_that_the_schema_does_not_have_is_told(write: Callable[..., Path]) -> None:
    heavy = [{"op": "input", "elements": [{"from": "a", "to": "a", "wieght": 2, "ts": 1}]}]
    raw = case(**{**ROUND, "loop": {**LOOP, "round": 2}, "steps": heavy})
    (result,) = run_file(write(raw), ReferenceExecutor())
    assert "the schema has no field 'round' of a loop, 'wieght' of an edge of step 1: not read" in result.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"broken_on": 5}, "TypeError"),
        ({"combine": ["sum"]}, "unhashable"),
        ({"steps": steps(5, stage2=10)}, "expected output watermarks"),
        (
            {
                "combine": "sum",
                "collect": "at_end",
                "steps": [
                    {"op": "input", "elements": [{"value": 1.5, "ts": 1}]},
                    {"op": "expect", "panes": [{"window": [0, 10], "result": 10**400}]},
                ],
            },
            "OverflowError",
        ),
    ],
)
def test_a_case_that_makes_no_sense_is_a_failure_of_its_own(
    changes: Any, reason: str, write: Callable[..., Path]
) -> None:
    wrong, good = run_file(write(case(**changes), case(name="good")), ReferenceExecutor())
    assert (wrong.status, good.status) == (CaseStatus.FAILED, CaseStatus.PASSED)
    assert reason in wrong.reason


def test_a_second_stage_sees_no_attributes(write: Callable[..., Path]) -> None:
    punctuation = {"type": "after_punctuation", "attribute": "end"}
    stage = {"window": {"type": "global"}, "trigger": {"type": "always"}, "accumulation": "DISCARDING"}
    trigger = {
        "type": "or_finally",
        "main": {"type": "repeatedly", "trigger": punctuation},
        "until": {"type": "after_any"},
    }
    trigger["until"]["triggers"] = [
        punctuation,
        {"type": "after_bytes", "bytes": 1},
        {"type": "after_count", "count": 2},
    ]  # type: ignore[index]
    parts = {"op": "input", "elements": [{"value": 1, "ts": 1, "end": True}]}
    raw = case(
        kind="pipeline",
        stages=[{**stage, "combine": "sum"}, {**stage, "combine": "sum", "trigger": trigger}],
        between={"key": "constant", "value": "sum"},
        steps=[parts, parts, {"op": "expect", "panes": [{"window": ["-inf", "+inf"], "result": 2}]}],
    )
    (result,) = run_file(write(raw), ReferenceExecutor())
    assert result.status is CaseStatus.PASSED, result.reason
