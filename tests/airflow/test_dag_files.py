"""Files in ``dags/`` that share the pipelines: each DAG is in one of them, always the same."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import REPOSITORY, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

PARSE = """
import json, os, sys
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as parsing_for
from headrace import installed
from headrace.pipeline.loading import registry

dags, load, loaded = Path({dags!r}), registry.load_module, []

def counted(file):
    loaded.append(file.stem)
    return load(file)

registry.load_module = counted

def parse(file):
    loaded.clear()
    bag = BundleDagBag(dag_folder=file, bundle_path=dags, bundle_name="dags-folder")
    return {{"dags": sorted(bag.dags), "errors": [*bag.import_errors.values()], "loaded": sorted({{*loaded}})}}

def choice(file):
    bag = BundleDagBag(dag_folder=file, bundle_path=dags, bundle_name="dags-folder")
    return bag.dags["headrace_release"].params.get_param("pipeline").schema["enum"]

def entry_points():
    return sum(installed._declared_at.cache_info()[:2]) // len(sys.path)  # of which each looks at all of these

files = sorted(dags.glob("headrace_pipelines*.py"))
found, asked_before = {{file.stem: parse(file) for file in files}}, entry_points()
offered = choice(files[0])
with parsing_for("headrace_p3_recover"):
    asked = [parse(file)["dags"] for file in files]
print(json.dumps({{"files": found, "task": asked, "choice": offered, "asked": asked_before}}))
"""
PIPELINES = [f"p{number}" for number in range(12)]


class SharedFolder:
    """A folder of DAG files, and one of pipelines."""

    def __init__(self, folder: Path) -> None:
        self.dags, self.pipelines, self.home = folder / "dags", folder / "pipelines", folder / "home"
        for path in (self.dags, self.pipelines, self.home):
            path.mkdir()
        self.environment = {"HEADRACE_PIPELINES": str(self.pipelines), "HEADRACE_CACHE": str(folder / "cache")}
        for name in PIPELINES:
            write_pipeline(self.pipelines, name, options="retention=hr.Retention(keep_last=7)")
        write_pipeline(self.pipelines, "often", options='schedule="0 25 * * *"')
        (self.pipelines / "zz_again.py").write_text((self.pipelines / "p5.py").read_text())

    def parse(self, *numbers: str) -> Any:
        """What Airflow finds in the file and in copies of these numbers."""
        for number in ("", *numbers):
            shutil.copy(REPOSITORY / "dags" / "headrace_pipelines.py", self.dags / f"headrace_pipelines{number}.py")
        return python(PARSE.format(dags=str(self.dags)), self.home, self.environment)


def where(parse_result: Any) -> dict[str, str]:
    """The file that has each DAG; each is in one."""
    places = [(dag, file) for file, parsed_file in parse_result["files"].items() for dag in parsed_file["dags"]]
    assert max(Counter(dag for dag, _ in places).values()) == 1
    return dict(places)


def test_files_share_the_dags_of_pipelines_and_a_further_one_takes_its_share(tmp_path: Path) -> None:
    shared_folder = SharedFolder(tmp_path)
    first_parse, three, four = shared_folder.parse(), shared_folder.parse("_2", "_3"), shared_folder.parse("_4")
    one, few, more = where(first_parse), where(three), where(four)
    assert set(one) == set(few) == set(more)
    assert {*one.values()} == {"headrace_pipelines"}
    assert {*few.values()} == {"headrace_pipelines", "headrace_pipelines_2", "headrace_pipelines_3"}
    assert {file for dag, file in more.items() if file != few[dag]} == {"headrace_pipelines_4"}
    for name in PIPELINES:  # a pipeline's DAGs are together
        assert len({few[f"headrace_{name}_{family}"] for family in ("process", "recover", "backfill")}) == 1
    assert few["headrace_release"] == few["headrace_maintain-daily"] == "headrace_pipelines"
    assert first_parse["choice"] == three["choice"] == four["choice"]
    assert {*PIPELINES} <= {*three["choice"]}
    assert not any(
        parsed_file["errors"] for parse in (first_parse, three, four) for parsed_file in parse["files"].values()
    )


def test_a_file_loads_pipelines_that_it_has_and_what_nobody_knows(tmp_path: Path) -> None:
    shared_folder = SharedFolder(tmp_path)
    shared_folder.parse("_2", "_3")
    parsed_files = shared_folder.parse()
    unusable, doubled_names = {"often"}, {"p5", "zz_again"}
    for file, parsed_file in parsed_files["files"].items():
        own = {dag.split("_", 1)[1].removesuffix("_process") for dag in parsed_file["dags"] if dag.endswith("_process")}
        if file == "headrace_pipelines":
            assert {*PIPELINES} <= {*parsed_file["loaded"]}
        else:
            assert {*parsed_file["loaded"]} - doubled_names == own - doubled_names | unusable


def test_pipelines_with_the_same_form_do_not_look_for_executors_each(tmp_path: Path) -> None:
    parsed_files = SharedFolder(tmp_path).parse()
    pipelines = sum(dag.endswith("_process") for dag in where(parsed_files))
    assert parsed_files["asked"] < 2 * pipelines


def test_a_task_finds_its_dag_in_each_of_the_files(tmp_path: Path) -> None:
    """Airflow may ask the one that had it before there were others."""
    assert SharedFolder(tmp_path).parse("_2")["task"] == [["headrace_p3_recover"]] * 2


def test_copies_beside_a_file_that_does_not_share_are_refused(tmp_path: Path) -> None:
    shared_folder = SharedFolder(tmp_path)
    shared_folder.parse("_2")
    own_text = (REPOSITORY / "dags" / "headrace_pipelines.py").read_text().replace("(__file__)", "()")
    (shared_folder.dags / "headrace_pipelines.py").write_text(own_text)
    parsed_answer = python(PARSE.format(dags=str(shared_folder.dags)), shared_folder.home, shared_folder.environment)
    assert {*where(parsed_answer).values()} == {"headrace_pipelines"}
    (error,) = parsed_answer["files"]["headrace_pipelines_2"]["errors"]
    assert "headrace_pipelines.py has the DAGs of all pipelines: write asked_for(__file__) in it" in error


BROKEN_SCRIPT = """
import json
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag
from headrace.pipeline.loading import registry

file, load, loaded = Path({file!r}), registry.load_module, []

def counted(file):
    loaded.append(file.stem)
    return load(file)

registry.load_module = counted
bag = BundleDagBag(dag_folder=file, bundle_path=file.parent, bundle_name="dags-folder")
print(json.dumps({{"dags": sorted(bag.dags), "errors": [*bag.import_errors.values()], "loaded": sorted(loaded)}}))
"""


def test_the_file_that_names_broken_ones_loads_these_alone(tmp_path: Path) -> None:
    shared_folder = SharedFolder(tmp_path)
    write_pipeline(shared_folder.pipelines, "refused", options='airflow=hr.airflow(default_args={"pool_slots": 0})')
    script = BROKEN_SCRIPT.format(file=str(REPOSITORY / "dags" / "headrace_broken_files.py"))
    first_parse, second_parse = (python(script, shared_folder.home, shared_folder.environment) for _ in range(2))
    assert first_parse["dags"] == second_parse["dags"] == []
    assert first_parse["errors"] == second_parse["errors"]
    (import_error,) = second_parse["errors"]
    for text in ("often.py:8: PipelineError", "zz_again.py: pipeline p5 is also defined in", "pool slots for"):
        assert text in import_error
    assert {*PIPELINES, "often", "refused", "zz_again"} <= {*first_parse["loaded"]}
    assert sorted(second_parse["loaded"]) == ["often", "refused", "zz_again"]
