"""What a task makes of the result object that its application left, and of one that left none.

The operator, its hook, the pipeline, the store and the result objects are real; ``spark-submit`` is a script that
leaves the result that a case asks for and ends with its exit code, so that no JVM starts.
"""

import json
import os
import stat
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RestoreError, RetryError
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.runs.reporting.results import RunError, RunResult
from tests.airflow.subprocesses import python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

SPARK_SUBMIT = """#!{python}
import json, os, sys
from headrace.runs.reporting.results import RunError, RunResult, write_run_result
from headrace.pipeline.scheduling import ExecutorDecision
from headrace_snapshots.store import open_store
case = json.load(open(os.environ["CASE"]))
given = sys.argv[sys.argv.index("process"):]
option = lambda name: given[given.index(name) + 1]
json.dump(sys.argv[1:], open(f"{{os.environ['CASE']}}.{{case['name']}}.argv", "w"))
if case["result"]:
    fields = case["result"] | {{"run_id": option("--run-id")}}
    fields["error"] = fields["error"] and RunError(**fields["error"])
    fields["executor"] = fields["executor"] and ExecutorDecision(**fields["executor"])
    write_run_result(open_store(option("--root")), RunResult(**fields))
print("something that Spark says")
sys.exit(case["exit_code"])
"""

EXECUTE = """
import json, logging, os, structlog, types, uuid
from airflow.sdk.bases.operator import ExecutorSafeguard
from headrace_airflow.failures import TypedRetries
from headrace_airflow.operators import HeadraceOperator
from headrace_airflow.roots import Root
ExecutorSafeguard.test_mode = True
flags = {"--max-epochs": "max_epochs", "--files-per-epoch": "files_per_epoch", "--full-sweep": "full_sweep",
         "--signal": "signals", "--strict": "strict", "--create": "create"}
task = {"dag_id": "headrace_clicks_process", "run_id": "manual__2026-11-21T01:00:00+00:00", "task_id": "process"}
params = {"max_epochs": 3, "files_per_epoch": None, "full_sweep": True, "branch": "main",
          "signals": ["go", 'ask=["u1"]'], "strict": True, "create": False, "executor": None}
def run(case):
    os.environ.update(case["variables"])
    for name in case["unset"]:
        del os.environ[name]
    with open(os.environ["CASE"], "w") as file:
        json.dump(case, file)
    rooted = Root.of_environment().pipeline("clicks")
    operator = HeadraceOperator(task_id="process", rooted=rooted, action="process", flags=flags)
    ti = types.SimpleNamespace(**task, try_number=1 + ("second" in case["name"]), id=uuid.uuid4())
    said.records.clear()
    with structlog.testing.capture_logs() as events:
        try:
            answer = {"xcom": operator.execute({"ti": ti, "params": params})}
        except Exception as error:
            decision = TypedRetries().evaluate(error, 1, 3)
            answer = {"raised": decision.action.value, "reason": decision.reason, "message": str(error)}
        finally:
            os.environ.clear()
            os.environ.update(before)
    told = [[e["log_level"], e["event"] % tuple(e.get("positional_args", ()))] for e in events]
    return {**answer, "log": told + said.records}
class Said(logging.Handler):
    records = []
    def emit(self, record):
        self.records.append([record.levelname.lower(), record.getMessage()])
said = Said(logging.INFO)
logging.getLogger("airflow.task").setLevel(logging.INFO)
logging.getLogger("airflow.task").addHandler(said)
before = dict(os.environ)
with open(os.environ["CASE"] + "s") as file:
    cases = json.load(file)
print(json.dumps({name: run(case) for name, case in cases.items()}))
"""

SUCCESSFUL_RESULT = RunResult(
    run_id="set by the case",
    pipeline="clicks",
    action="process",
    status="succeeded",
    started_at="2026-11-21T01:00:00Z",
    finished_at="2026-11-21T01:00:09Z",
    epochs=(3, 4),
    snapshot="s4",
    epoch=4,
    counts={"panes": 7},
    watermark="2026-11-20T00:00:00Z",
    executor=ExecutorDecision("spark", "the pipeline's own"),
)


def make_failure(error: RunError) -> RunResult:
    """A result with ``error``."""
    return RunResult(
        "", "clicks", "process", "failed", SUCCESSFUL_RESULT.started_at, SUCCESSFUL_RESULT.finished_at, error
    )


BRANCHES: tuple[type[HeadraceError], ...] = (FixConfigError, FixDataError, RetryError, RestoreError, GiveUpError)

_IN_THE_CLUSTER = {
    "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
        {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    )
}
CASES: dict[str, tuple[RunResult | None, int, tuple[str, ...] | dict[str, str]]] = {
    "succeeded": (SUCCESSFUL_RESULT, 0, ()),
    **{
        branch.code: (make_failure(RunError.of(branch("column x is missing from a.json"))), branch.exit_code, ())
        for branch in BRANCHES
    },
    "failed, exit code 0": (make_failure(RunError.of(FixDataError("bad rows"))), 0, ()),
    "no result, exit code 0": (None, 0, ()),
    "no result, exit code 10": (None, 10, ()),
    "no result, exit code 137": (None, 137, ()),
    "succeeded, exit code 137": (SUCCESSFUL_RESULT, 137, ()),
    "succeeded at the second attempt": (SUCCESSFUL_RESULT, 0, ()),
    "succeeded with a warning": (replace(SUCCESSFUL_RESULT, warnings=("a clock is ahead",)), 0, ()),
    "no root": (SUCCESSFUL_RESULT, 0, ("HEADRACE_ROOT",)),
    "no connection": (SUCCESSFUL_RESULT, 0, ("AIRFLOW_CONN_SPARK_DEFAULT",)),
    "driver in the cluster": (SUCCESSFUL_RESULT, 0, _IN_THE_CLUSTER),
}
"""What the application leaves, its exit code, and which variables the worker lacks, or has beside others."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pipeline and a ``spark-submit`` that does as told."""
    folder = tmp_path_factory.mktemp("operators")
    task_arguments = '{"num_executors": 3, "deploy_mode": "cluster", "priority_weight": 2}'
    write_pipeline(folder, "clicks", options=f"airflow=hr.airflow(default_args={task_arguments})")
    binary = folder / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(SPARK_SUBMIT.format(python=sys.executable))
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(scope="module")
def answers(folder: Path) -> Any:
    """What the operator's execute returned or raised in each case; one process for all: Airflow is slow to import."""
    cases = {
        name: {
            "name": name,
            "result": result and asdict(result),
            "exit_code": exit_code,
            "unset": others if isinstance(others, tuple) else (),
            "variables": others if isinstance(others, dict) else {},
        }
        for name, (result, exit_code, others) in CASES.items()
    }
    (folder / "cases").write_text(json.dumps(cases))
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CASE": str(folder / "case"),
        "HEADRACE_PIPELINES": str(folder),
        "HEADRACE_ROOT": (folder / "root").as_uri(),
        "HEADRACE_LOGS": str(folder / "logs"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "AWS_SECRET_ACCESS_KEY": "hunter2hunter2",
    }
    return python(EXECUTE, folder / "airflow", environment)


def test_the_figures_of_the_result_are_the_xcom(answers: Any) -> None:
    xcom = dict(answers["succeeded"]["xcom"])
    assert xcom.pop("run_id").startswith("headrace_clicks_process.manual__2026-11-21T01-00-00-00-00.process.1-")
    assert xcom == {
        "epochs": 2, "epoch": 4, "snapshot": "s4", "published": None, "counts": {"panes": 7},
        "watermark": "2026-11-20T00:00:00Z", "executor": "spark",
    }  # fmt: skip


def test_the_form_becomes_arguments_and_no_secret_is_one(answers: Any, folder: Path) -> None:
    assert "xcom" in answers["succeeded"]
    argv = json.loads((folder / "case.succeeded.argv").read_text())
    given_arguments = argv[argv.index("process") :]
    assert {"--max-epochs=3", "--branch=main", "--full-sweep", "--strict", "--executor=spark"} <= {*given_arguments}
    assert "--create" not in given_arguments
    assert [part for part in given_arguments if part.startswith("--signal")] == ["--signal=go", '--signal=ask=["u1"]']
    assert not any(part.startswith("--files-per-epoch") for part in given_arguments)
    assert given_arguments[given_arguments.index("--pipeline") + 1] == f"{folder / 'clicks.py'}:clicks"
    assert not any("hunter2" in argument for argument in argv)


def test_arguments_for_all_tasks_reach_spark_but_for_what_headrace_decides(answers: Any, folder: Path) -> None:
    assert "xcom" in answers["succeeded"]
    argv = json.loads((folder / "case.succeeded.argv").read_text())
    assert argv[argv.index("--num-executors") + 1] == "3"
    assert argv[argv.index("--deploy-mode") + 1] == "client"
    assert argv[argv.index("--name") + 1] == "headrace clicks process"


def test_attempts_have_results_of_their_own_and_one_request(answers: Any, folder: Path) -> None:
    cases = ("succeeded", "succeeded at the second attempt")
    assert all("xcom" in answers[case] for case in cases)
    first, second = (json.loads((folder / f"case.{case}.argv").read_text()) for case in cases)
    requests = [argv[argv.index("--request") + 1] for argv in (first, second)]
    assert requests[0] == requests[1]
    assert first[first.index("--run-id") + 1] != second[second.index("--run-id") + 1]


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_result_decides_how_the_task_fails(answers: Any, branch: type[HeadraceError]) -> None:
    answer = answers[branch.code]
    assert answer["raised"] == ("retry" if branch is RetryError else "fail")
    assert answer["message"].startswith(f"{branch.code}: column x is missing from a.json")
    assert answer["reason"].startswith(f"{branch.code} ")


def test_a_result_of_failure_counts_even_when_spark_says_all_is_well(answers: Any) -> None:
    assert answers["failed, exit code 0"]["message"].startswith("data: bad rows")


@pytest.mark.parametrize(("exit_code", "error_name"), [(10, "fail"), (137, "retry")])
def test_without_a_result_the_exit_code_decides(answers: Any, exit_code: int, error_name: str) -> None:
    answer = answers[f"no result, exit code {exit_code}"]
    assert answer["raised"] == error_name
    assert f"exit code {exit_code}" in answer["message"]
    assert "something that Spark says" in answer["message"]


def test_success_without_a_result_is_a_failure(answers: Any) -> None:
    assert answers["no result, exit code 0"]["raised"] == "retry"


def test_a_killed_driver_is_no_success_although_it_had_written_its_result(answers: Any) -> None:
    assert answers["succeeded, exit code 137"]["raised"] == "retry"


def test_what_spark_says_is_folded_or_in_a_file_that_is_named(answers: Any, folder: Path) -> None:
    messages = [message for _, message in answers["succeeded"]["log"]]
    (named_message,) = [message for message in messages if message.startswith("Spark's messages go to a file")]
    file = named_message.rpartition(": ")[2]
    assert Path(file).parent == folder / "logs"
    assert Path(file).is_file()
    argv = json.loads((folder / "case.succeeded.argv").read_text())
    assert any(f'"-Dheadrace.log={file}"' in argument for argument in argv)
    assert messages.index("::group::Spark starts") < messages.index("something that Spark says")


def test_a_fold_that_the_application_did_not_end_does_not_hide_the_error(answers: Any) -> None:
    assert [message for _, message in answers["no result, exit code 137"]["log"]][-1] == "::endgroup::"
    assert "::endgroup::" not in [message for _, message in answers["data"]["log"]]


def test_warnings_of_a_run_are_warnings_of_the_task_and_come_last(answers: Any) -> None:
    assert answers["succeeded with a warning"]["log"][-1] == ["warning", "a clock is ahead"]


def test_details_of_an_error_of_the_worker_are_folded_above_its_message(answers: Any) -> None:
    answer = answers["no root"]
    messages = [message for _, message in answer["log"]]
    assert messages[-3] == "::group::Details of the error"
    assert messages[-2].startswith("Traceback")
    assert messages[-1] == "::endgroup::"
    wrong, what_to_do, page = answer["message"].splitlines()
    assert wrong.startswith("config.environment: HEADRACE_ROOT is not set")
    assert what_to_do == "Change the configuration, then clear this task."
    assert "/plugin/headrace_dag" in page


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("no root", "config.environment"),
        ("no connection", "config.spark_connection"),
        ("driver in the cluster", "config.deploy_mode"),
    ],
)
def test_what_the_deployment_must_set(answers: Any, case: str, code: str) -> None:
    assert answers[case]["raised"] == "fail"
    assert answers[case]["message"].startswith(code)


def test_a_driver_starts_beside_its_task(answers: Any, folder: Path) -> None:
    argv = json.loads((folder / "case.succeeded.argv").read_text())
    assert argv[argv.index("--deploy-mode") + 1] == "client"
    assert "Set deploy-mode to client" in answers["driver in the cluster"]["message"]
    assert not (folder / "case.driver in the cluster.argv").exists(), "nothing was submitted"
