"""``headrace test``: tests beside pipelines, in YAML and in Python."""

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import NotInstalledError
from headrace.testing.steps import UnitTestError
from headrace.testing.suite import Verdict, find_tests, read_tests, run_tests
from tests.docs.pages import ROOT

PIPELINE = """
from datetime import datetime
import headrace as hr
from headrace import col

weather = hr.csv("landing/weather", {"airport": str, "at": datetime}).event_time("at", bound="0s")
delays = hr.Pipeline(
    "delays",
    hr.json("landing/flights", {"origin": str, "at": datetime, "delay": int}).event_time("at", bound="0s"),
    key="origin",
    what={"flights": hr.count(), "worst": col("delay").max()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterAny(hr.AfterSignal("go"), hr.AfterCount(3)), late=hr.AfterCount(1)),
    union=[weather.named("weather", columns={"origin": col("airport")})],
)
"""

PASSES = """
    tests:
      - name: on time
        given:
          - rows: [{origin: NO, at: 13:05, delay: 5}]
            watermark: 14:00
            expect:
              watermark: 14:00
              panes: [{origin: NO, window: [13:00, 14:00], worst: 5}]
        expect:
          late: []
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a pipeline in it."""
    (tmp_path / "delays.py").write_text(PIPELINE)
    (tmp_path / "tests").mkdir()
    return tmp_path


def write_file(folder: Path, text: str, name: str = "tests/delays.yaml") -> Path:
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return file


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["test", *map(str, arguments)])


@pytest.mark.parametrize("name", ["tests/delays.yaml", "delays.test.yaml", "tests/delays.test.yml"])
def test_a_file_finds_the_pipeline_beside_it(folder: Path, name: str) -> None:
    (test,) = read_tests(write_file(folder, PASSES, name))
    assert test.pipeline.name == "delays"
    assert test.find_failures() == []
    assert test.find_failures("reference") == []


def test_steps_say_all_that_steps_of_python_do(folder: Path) -> None:
    file = write_file(
        folder,
        """
        pipeline: ../delays.py:delays
        tests:
          - name: everything
            description: each kind of step
            given:
              - processing_time: 12:00
              - rows:
                  source: [{origin: JFK, at: 13:05, delay: 5}, '{"origin": "LGA", "at": "1970-01-01T13:05:00Z"}']
                  weather: [{airport: JFK, at: 13:06}]
              - signal: {name: go, key: [JFK]}
                expect:
                  panes: [{origin: JFK, flights: 2, timing: early}]
              - signal: go
              - watermark: {weather: 15:00}
                expect: {watermark: 13:05}
              - end: true
            expect:
              watermark: +inf
              rejected: []
              current: [{origin: JFK, flights: 2}, {origin: LGA, worst: null}]
        """,
    )
    (test,) = read_tests(file)
    assert test.find_failures() == []
    assert test.find_failures("reference") == []


def test_a_failure_names_file_line_and_step(folder: Path) -> None:
    text = PASSES.replace("worst: 5}", "worst: 6}").replace(
        "watermark: 14:00\n              panes", "watermark: 15:00\n              panes"
    )
    (test,) = read_tests(write_file(folder, text))
    watermark, panes = test.find_failures()
    assert watermark == f"{folder}/tests/delays.yaml:8: after step 1, watermark: 15:00 expected, 14:00 found"
    assert panes.startswith(f"{folder}/tests/delays.yaml:9: after step 1, panes: 1 expected, 1 found\n")
    assert panes.endswith("worst: 6 expected, 5 found")


def run_all(file: Path) -> None:
    for test in read_tests(file):
        test.find_failures()


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("tests:", "test:"), 2, "a file of tests has no 'test'; did you mean 'tests'"),
        (("- name: on time", "- names: on time"), 3, "a test has no 'names'; did you mean 'name'"),
        (("- name: on time", "- description: on time"), 3, "a test without `name:`"),
        (("name: on time", "name: 7"), 3, "name is 7; write a text"),
        (("given:", "givn:"), 4, "a test has no 'givn'; did you mean 'given'"),
        (("rows:", "row:"), 5, "a step has no 'row'; did you mean 'rows'"),
        (("rows: [{origin: NO, at: 13:05, delay: 5}]", "rows: 7"), 5, "rows: 7 is not a list"),
        (("delay: 5", "dely: 5"), 5, "record 1 of input source has a column 'dely'"),
        (("{origin: NO, at: 13:05, delay: 5}", "7"), 5, "record 1 is 7; write a dict"),
        (
            ("            watermark: 14:00\n            expect", "            watermark: noon\n            expect"),
            6,
            "is 'noon'",
        ),
        (
            ("            watermark: 14:00\n            expect", "            signal: stop\n            expect"),
            5,
            "no trigger of delays waits for 'stop'",
        ),
        (
            ("            watermark: 14:00\n            expect", "            end: false\n            expect"),
            6,
            "write `end: true`",
        ),
        (
            ("            watermark: 14:00\n            expect", "            rows: []\n            expect"),
            6,
            "'rows' stands here twice",
        ),
        (("panes:", "pane:"), 9, "expect has no 'pane'; did you mean 'panes'"),
        (("worst: 5", "worts: 5"), 9, "panes have no column 'worts'; did you mean 'worst'"),
        (("late: []", "late: none"), 11, "late: 'none' is not a list"),
        (("late: []", "watermark: 7"), 11, "the expected watermark is 7"),
        (("late: []", "late: ["), 12, "not YAML"),
    ],
)
def test_a_mistake_names_file_line_and_what_to_write(
    folder: Path, change: tuple[str, str], line: int, message: str
) -> None:
    assert change[0] in PASSES
    file = write_file(folder, PASSES.replace(*change, 1))
    with pytest.raises(UnitTestError) as error:
        run_all(file)
    assert str(error.value).startswith(f"{file}:"), error.value
    assert message in str(error.value)
    assert int(str(error.value).removeprefix(f"{file}:").partition(":")[0]) == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a file of tests is None; write a mapping"),
        ("pipeline: ../delays.py", "there are no tests here; write `tests:`"),
        ("tests: [{name: a, given: [{end: true}]}]", "a test that expects nothing; write `expect:`"),
        ("tests: [{name: a, given: [{expect: {late: []}}]}]", "a step without rows, watermark"),
        ("tests: [&a {name: a, given: [], expect: {late: []}}, *a]", "another test has the name 'a'"),
        ("? [a]\n: b", "a name is a text"),
    ],
)
def test_a_file_that_says_nothing_says_what_to_write(folder: Path, text: str, message: str) -> None:
    with pytest.raises(UnitTestError, match=r"delays\.yaml:\d+: ") as error:
        run_all(write_file(folder, text))
    assert message in str(error.value)


BAD_YAML = """
tests:
  - name: it holds
    given: [{end: true}]
    expect: {panes: []}
  - name: three mistakes
    givn: []
    given:
      - row: []
      - {rows: 7, watermark: noon}
    expect: {pane: []}
  - name: two wrong steps
    given:
      - rows: [{origin: JFK, at: 13:05, dely: 5}]
      - watermark: 14:00
      - signal: stop
    expect: {panes: []}
  - name: two wrong expectations
    given: [{end: true}]
    expect: {late: none, watermark: 7}
  - name: it holds
    given: [{end: true}]
    given: []
    expect: {panes: []}
  - name: it holds too
    given: [{end: true}]
    expect: {late: []}
pipline: ../delays.py
"""


def test_a_malformed_test_tells_all_of_its_mistakes_and_the_others_run(folder: Path) -> None:
    file = write_file(folder, BAD_YAML)
    rows = [(each.name, each.verdict, each.message) for each in run_tests(find_tests(file))]
    verdicts = [(name, verdict) for name, verdict, _ in rows]
    assert verdicts == [
        ("delays.yaml", Verdict.ERROR),
        ("it holds", Verdict.PASSED),
        ("three mistakes", Verdict.ERROR),
        ("two wrong steps", Verdict.ERROR),
        ("two wrong expectations", Verdict.ERROR),
        ("it holds", Verdict.ERROR),
        ("it holds too", Verdict.PASSED),
    ]
    lines_by_message = [
        [re.sub(r"^.*delays\.yaml:", "", line) for line in message.splitlines()] for *_, message in rows
    ]
    problems_by_message = [
        [(int(line.partition(":")[0]), line.partition(": ")[2]) for line in lines] for lines in lines_by_message
    ]
    lines = [[line for line, _ in each] for each in problems_by_message]
    assert lines == [[28], [], [7, 9, 10, 10, 11], [14, 16], [20, 20], [23, 21], []]
    text = "\n".join(text for each in problems_by_message for _, text in each)
    words = ["givn", "'row'", "rows: 7", "noon", "'pane'", "dely", "'stop'", "'none'", "watermark is 7", "twice"]
    assert [word for word in words if word not in text] == []


def test_a_pipeline_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(
        UnitTestError, match=r"there is no other\.py beside it or in the folder above; write `pipeline:"
    ):
        read_tests(write_file(folder, PASSES, "tests/other.yaml"))


def test_tests_are_found_in_folders(folder: Path) -> None:
    names = ["delays.test.yaml", "tests/delays.yml", "tests/test_delays.py", "deep_test.py"]
    others = ["conf.yaml", "tests/data.yaml", ".hidden.test.txt"]
    for name in [*names, *others]:
        write_file(folder, "a: b", name)
    (folder / ".venv").mkdir()
    write_file(folder, "", ".venv/test_a.py")
    tests = find_tests(folder)
    assert {str(file.relative_to(folder)) for file in (*tests.unit_tests, *tests.python)} == {*names}
    assert tests.others == (folder / "tests/data.yaml",)
    (folder / "empty").mkdir()
    with pytest.raises(UnitTestError, match="there are no tests in"):
        find_tests(folder / "empty")


def test_the_command_prints_a_line_for_each_test(folder: Path) -> None:
    write_file(folder, PASSES)
    result = call(folder)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"passed  {folder}/tests/delays.yaml:3 on time (")
    assert "1 passed" in result.stderr
    result = call(folder, "--executor", "reference")
    assert result.exit_code == 0
    assert "headrace-lab" not in result.stderr


def test_a_failure_ends_with_1_and_a_mistake_with_10(folder: Path) -> None:
    file = write_file(folder, PASSES.replace("worst: 5}", "worst: 6}"))
    result = call(file)
    assert result.exit_code == 1
    assert "worst: 6 expected, 5 found" in result.stdout
    write_file(folder, PASSES.replace("given", "giben"), "tests/wrong.test.yaml")
    both = call(folder)
    assert both.exit_code == 10
    assert "error " in both.stdout
    assert "failed " in both.stdout
    assert "1 error, 1 failed" in both.stderr
    assert call(folder / "none").exit_code == 10
    assert call(folder / "delays.txt").exit_code == 10
    assert call(file, "--executor", "spark").exit_code == 10


def test_machines_get_json(folder: Path) -> None:
    file = write_file(folder, PASSES)
    (folder / "delays.py").write_text(PIPELINE.replace("hr.count()", "hr.cout()"))
    result = call(file, "--format", "json")
    assert result.exit_code == 10
    document = json.loads(result.stdout)
    assert document["counts"] == {"error": 1}
    (test,) = document["tests"]
    assert {"file", "line", "name", "verdict", "message", "seconds"} == {*test}
    assert f"{folder}/delays.py:11" in test["message"]
    assert f"{file}:1 names that pipeline" in test["message"]


@pytest.mark.slow
def test_tests_in_python_run_with_pytest(folder: Path) -> None:
    file = write_file(
        folder,
        """
        import pytest
        from headrace.testing import assert_panes, load, rows, run, watermark

        delays = load("../delays.py", beside=__file__)

        def test_on_time():
            result = run(delays, [rows({"origin": "JFK", "at": "13:05"}), watermark("14:00")])
            assert_panes(result, [{"origin": "JFK", "flights": 1}])

        def test_wrong():
            assert_panes(run(delays, []), [{"origin": "JFK"}])

        @pytest.mark.skip(reason="later")
        def test_later():
            raise AssertionError
        """,
        "tests/test_delays.py",
    )
    on_time, wrong, result_later = run_tests(find_tests(file))
    assert (on_time.verdict, on_time.name) == (Verdict.PASSED, "test_on_time")
    assert wrong.verdict is Verdict.FAILED
    assert "panes: 1 expected, none found" in wrong.message
    assert result_later.verdict is Verdict.SKIPPED


@pytest.mark.slow
def test_a_mistake_in_a_python_test_shows_its_line_and_no_frame_of_headrace(folder: Path) -> None:
    file = write_file(
        folder,
        """
        import headrace as hr
        from headrace.testing import assert_panes, load, rows, run, watermark

        delays = load("../delays.py", beside=__file__)

        def test_of_a_record():
            run(delays, [rows({"orgin": "JFK", "at": "13:05"})])  # here

        def test_of_a_time():
            watermark("noon")  # here

        def test_of_an_expectation():
            assert_panes(run(delays, []), [{"orgin": "JFK"}])  # here

        def test_of_a_pipeline():
            hr.json("landing", {"at": "no type"})  # here

        def test_of_a_file():
            load("nowhere.py", beside=__file__)  # here

        def helper():
            return hr.FixedWindows("an hour")  # here

        def test_through_a_function_of_its_own():
            helper()

        def test_of_an_error_that_is_not_headraces():
            raise ValueError("own")  # here
        """,
        "tests/test_delays.py",
    )
    results = [*run_tests(find_tests(file))]
    assert {each.verdict for each in results} == {Verdict.FAILED}
    for each in results:
        assert "# here" in each.message, each.message
        assert "headrace/testing/" not in each.message
        assert "headrace/pipeline/" not in each.message
        assert len(each.message.splitlines()) < 15, each.message


@pytest.mark.slow
def test_a_python_file_that_cannot_be_collected_is_an_error(folder: Path) -> None:
    write_file(folder, "def test_good():\n    pass\n", "tests/test_good.py")
    write_file(folder, "\nimport nothing_of_that_name\n", "tests/test_missing.py")
    write_file(folder, "def test_it(:\n    pass\n", "tests/test_syntax.py")
    write_file(folder, "from helper import nothing\n", "tests/test_through.py")
    write_file(folder, "\n\nraise RuntimeError('no luck')\n", "tests/helper.py")
    results_by_file = {Path(each.file).name: each for each in run_tests(find_tests(folder / "tests"))}
    assert results_by_file.pop("test_good.py").verdict is Verdict.PASSED
    assert {each.verdict for each in results_by_file.values()} == {Verdict.ERROR}
    assert {name: each.line for name, each in results_by_file.items()} == {
        "test_missing.py": 2,
        "test_syntax.py": 1,
        "test_through.py": 1,
    }
    for name, cause in (
        ("test_missing.py", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("test_syntax.py", "SyntaxError: invalid syntax"),
        ("test_through.py", "RuntimeError: no luck"),
    ):
        assert results_by_file[name].name == name
        assert results_by_file[name].message == f"it cannot be imported, so none of its tests ran: {cause}"


TOO_LARGE = "{origin: JFK, at: 13:05, delay: 9223372036854775807}, {origin: JFK, at: 13:06, delay: 1}"


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_a_run_that_must_raise(folder: Path, executor: Any) -> None:
    write_file(
        folder,
        f"""
        pipeline: ../sums.py
        tests:
          - name: by its message
            given: [{{rows: [{TOO_LARGE}]}}, {{end: true}}]
            expect: {{raises: leaves 64 bits}}
          - name: by its code
            given: [{{rows: [{TOO_LARGE}]}}, {{end: true}}]
            expect: {{raises: data.integer_overflow}}
          - name: another one
            given: [{{rows: [{TOO_LARGE}]}}, {{end: true}}]
            expect: {{raises: no room}}
          - name: nothing at all
            given: [{{end: true}}]
            expect: {{raises: leaves 64 bits}}
          - name: a test that makes no sense does not count
            given: [{{rows: {{nowhere: []}}}}]
            expect: {{raises: nowhere}}
        """,
        "tests/sums.yaml",
    )
    (folder / "sums.py").write_text(PIPELINE.replace('col("delay").max()', 'col("delay").sum()'))
    results_by_name = {each.name: each for each in run_tests(find_tests(folder / "tests"), executor)}
    assert [results_by_name[name].verdict for name in ("by its message", "by its code")] == [
        Verdict.PASSED,
        Verdict.PASSED,
    ]
    assert results_by_name["another one"].verdict is Verdict.FAILED
    assert "'no room' expected, this was raised: " in results_by_name["another one"].message
    assert "leaves 64 bits" in results_by_name["another one"].message
    assert results_by_name["nothing at all"].verdict is Verdict.FAILED
    assert "nothing was raised" in results_by_name["nothing at all"].message
    assert results_by_name["a test that makes no sense does not count"].verdict is Verdict.ERROR


def test_a_run_that_must_raise_gives_no_results(folder: Path) -> None:
    file = write_file(
        folder,
        """
        tests:
          - name: both
            given: [{end: true}]
            expect: {panes: [], raises: text}
        """,
    )
    with pytest.raises(UnitTestError, match=r"delays.yaml:5: a run that raises gives no results"):
        run_all(file)


def test_pytest_that_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_file(folder, "", "tests/test_delays.py")
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(
        NotInstalledError, match=re.escape("needs pytest, which is not installed: pip install 'headrace[test]'")
    ):
        list(run_tests(find_tests(file)))


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_the_shipped_pipelines_pass_their_tests(executor: Any) -> None:
    shipped_path = ROOT / "jobs" / "pipelines"
    results = list(run_tests(find_tests(shipped_path), executor))
    assert {tested_result.verdict for tested_result in results} == {Verdict.PASSED}, results
    files = {Path(tested_result.file).stem for tested_result in results}
    assert files >= {file.stem for file in shipped_path.glob("[!_]*.py")}


def test_columns_of_results_and_rows_that_having_withholds(folder: Path) -> None:
    text = PIPELINE.replace(
        '"worst": col("delay").max()}', '"worst": col("delay").max(), "each": col("worst") / col("flights")}'
    )
    (folder / "delays.py").write_text(text.replace("union=", 'having=col("each") > 4,\n    union='))
    file = write_file(
        folder,
        """
        tests:
          - name: withheld, then shown, then withdrawn
            given:
              - rows: [{origin: NO, at: 13:05, delay: 4}, {origin: NO, at: 13:06}, {origin: NO, at: 13:07}]
                expect:
                  panes: []
              - rows: [{origin: NO, at: 13:08, delay: 60}, {origin: NO, at: 13:09}, {origin: NO, at: 13:10}]
                expect:
                  panes: [{origin: NO, window: [13:00, 14:00], each: 10.0, pane_index: 1}]
              - rows: [{origin: NO, at: 13:11}, {origin: NO, at: 13:12}, {origin: NO, at: 13:13}]
                expect:
                  current: [{origin: NO, window: [13:00, 14:00], flights: 9, worst: 60}]
        """,
    )
    (test,) = read_tests(file)
    assert test.find_failures() == []
    assert test.find_failures("reference") == []
