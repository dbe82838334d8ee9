"""Several roots in one Airflow: how they are declared, which DAGs they have, what a mistake in one leaves of others."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace_airflow.roots import ServedRoots, UnknownRootError, served_roots
from tests.airflow.subprocesses import REPOSITORY, python, write_pipeline

SALES = '[[root]]\nname = "sales"\nuri = "s3://sales/headrace"\npipelines = ["sales"]\nstore = "sales_s3"\n'
RISK = '[[root]]\nname = "risk"\nuri = "s3://risk/headrace"\npipelines = ["risk"]\nstore = "risk_s3"\n'


def serve(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, root: str | None = None) -> ServedRoots:
    """What is served where a file of ``folder`` says ``text``, and the environment names ``root``."""
    file = folder / "roots.toml"
    file.write_text(text)
    monkeypatch.setenv("HEADRACE_ROOTS", str(file))
    monkeypatch.delenv("HEADRACE_ROOT", raising=False)
    if root is not None:
        monkeypatch.setenv("HEADRACE_ROOT", root)
    return served_roots()


def names(roots: ServedRoots) -> list[str]:
    return [root.name for root in roots.roots]


def test_roots_are_served_in_the_order_of_the_file_after_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    defaults = 'airflow = "risk_defaults.py"\nendpoint = "http://s3.local/"\n'
    roots_served = serve(monkeypatch, tmp_path, SALES + RISK + defaults, root="s3://old/root")
    assert (names(roots_served), roots_served.problems) == (["", "sales", "risk"], ())
    risk = roots_served.root_named("risk")
    assert (risk.uri, risk.store, risk.endpoint) == ("s3://risk/headrace", "risk_s3", "http://s3.local")
    assert risk.folders.folders == (tmp_path / "risk",)  # beside the file
    assert risk.defaults == str(tmp_path / "risk_defaults.py")


def test_the_environment_declares_a_root_beside_others_only_by_its_uri(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    roots_served = serve(monkeypatch, tmp_path, SALES)
    assert names(roots_served) == ["sales"]
    with pytest.raises(UnknownRootError, match="set HEADRACE_ROOT"):
        roots_served.root_named("")
    monkeypatch.delenv("HEADRACE_ROOTS")
    assert names(served_roots()) == [""]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            SALES.replace("s3://sales", "s3://other"),
            "there are two of that name; this Airflow serves s3://sales/headrace",
        ),
        (RISK.replace("s3://risk/headrace", "s3://sales/headrace/risk"), "neither may lie in the other"),
        (RISK.replace("s3://risk/headrace", "s3://sales"), "neither may lie in the other"),
        (RISK.replace("s3://risk/headrace", "s3://old/root/"), "in HEADRACE_ROOT are not apart"),
        (RISK.replace('"risk"', '"Risk"', 1), "the name 'Risk'"),
        (RISK.replace('name = "risk"\n', ""), "the name ''"),
        (RISK.replace("s3://risk", "ftp://risk"), "the uri 'ftp://risk/headrace': write file:"),
        (RISK.replace("s3://risk/headrace", "user:secret@risk"), "write file:"),
        (RISK.replace("store", "stores"), "'stores', which Headrace does not know; did you mean 'store'?"),
        (RISK.replace('"risk_s3"', "5"), "store is no text"),
        (RISK.replace('["risk"]', '"risk"'), "pipelines names no folders"),
        (RISK.replace('pipelines = ["risk"]\n', ""), "pipelines names no folders"),
    ],
)
def test_a_root_that_cannot_be_used_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: str, problem: str
) -> None:
    last = RISK.replace("risk", "audit")
    roots_served = serve(monkeypatch, tmp_path, SALES + entry + last, root="s3://old/root")
    assert names(roots_served) == ["", "sales", "audit"]
    assert roots_served.root_named("sales").uri == "s3://sales/headrace"
    (message,) = roots_served.problems
    assert problem in message
    assert f"{tmp_path / 'roots.toml'}: root 2" in message
    with pytest.raises(UnknownRootError, match="root 2"):
        roots_served.root_named("nobody")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[root]\n", "cannot be read: Expected ']]'"),
        (SALES.replace("[[root]]", "[root]"), r"begin each root with \[\[root\]\], in two brackets"),
        (SALES.replace("[[root]]", "[[roots]]"), "roots is nothing that Headrace knows"),
    ],
)
def test_a_file_that_cannot_be_read_leaves_the_root_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, problem: str
) -> None:
    roots_served = serve(monkeypatch, tmp_path, text, root="s3://old/root")
    assert names(roots_served) == [""]
    with pytest.raises(UnknownRootError, match=problem):
        roots_served.root_named("sales")
    monkeypatch.setenv("HEADRACE_ROOTS", str(tmp_path / "absent.toml"))
    assert "absent.toml, which cannot be read" in served_roots().problems[0]


def test_a_file_that_changes_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert names(serve(monkeypatch, tmp_path, SALES)) == ["sales"]
    assert names(serve(monkeypatch, tmp_path, SALES + RISK)) == ["sales", "risk"]


def test_one_uri_in_two_services_is_two_roots_if_both_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = SALES + 'endpoint = "http://staging"\n'
    other = RISK.replace("s3://risk", "s3://sales")
    assert names(serve(monkeypatch, tmp_path, one + other)) == ["sales"]
    assert names(serve(monkeypatch, tmp_path, one + other + 'endpoint = "http://production"\n')) == ["sales", "risk"]


def test_files_of_a_root_are_apart_whatever_leads_to_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("sales", "risk"):
        (tmp_path / name).mkdir()
    write_pipeline(tmp_path / "sales", "clicks")
    (tmp_path / "risk" / "linked.py").symlink_to(tmp_path / "sales" / "clicks.py")
    (tmp_path / "again").symlink_to(tmp_path / "risk")
    write_pipeline(tmp_path / "risk", "own")
    both = RISK.replace("risk", "both").replace('["both"]', '["again"]')
    roots_served = serve(monkeypatch, tmp_path, SALES + RISK + both)
    files_by_root = {root.name: root.registered_files() for root in roots_served.roots}
    assert {name: [*files.pipelines] for name, files in files_by_root.items()} == {
        "sales": ["clicks"], "risk": ["own"], "both": [],
    }  # fmt: skip
    assert not files_by_root["sales"].broken
    (linked_problem,) = files_by_root["risk"].broken.values()
    assert "linked.py: it is" in linked_problem
    (second_problem,) = files_by_root["both"].broken.values()
    assert "again: " in second_problem and "(both) names it, and so does another root" in second_problem


def test_the_file_on_the_how_to_page_declares_two_roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/how-to/several-roots.md").read_text()
    roots_served = serve(monkeypatch, tmp_path, page.partition("```toml\n")[2].partition("```")[0])
    assert (names(roots_served), roots_served.problems) == (["sales", "risk"], ())
    sales = roots_served.root_named("sales")
    assert (sales.store, sales.defaults) == ("sales_s3", str(tmp_path / "sales_defaults.py"))


PARSE = f"""
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as parsing_for

def parsed():
    bag = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
    stored = {{name: json.dumps(DagSerialization.to_dict(dag), sort_keys=True) for name, dag in bag.dags.items()}}
    return bag, stored

roots = os.environ.pop("HEADRACE_ROOTS")
_, alone = parsed()
os.environ["HEADRACE_ROOTS"] = roots
bag, stored = parsed()
kept = sorted(name for name in os.environ if name.startswith("AIRFLOW_CONN_"))

def about(dag):
    process = dag.task_dict.get("process")
    return {{
        "tags": sorted(dag.tags), "owner": dag.tasks[0].owner, "pool": process and process.pool, "doc": dag.doc_md,
        "outlets": [one.name for task in dag.tasks for one in task.outlets],
        "uris": [one.uri for task in dag.tasks for one in task.outlets if hasattr(one, "uri")],
        "pipelines": dag.params.get_param("pipeline").schema.get("enum") if "pipeline" in dag.params else None,
        "schedule": [one.uri for one in dag.schedule] if isinstance(dag.schedule, list) else None,
    }}

answers = {{
    "dags": {{name: about(dag) for name, dag in bag.dags.items()}},
    "alone": sorted(alone), "same": all(stored[name] == alone[name] for name in alone),
    "errors": bag.import_errors, "kept": kept,
}}
with parsing_for("headrace_risk.clicks_process"):
    task = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
answers["task"] = {{
    "dags": list(task.dags), "errors": task.import_errors,
    "kept": sorted(name for name in os.environ if name.startswith("AIRFLOW_CONN_")),
}}
for dag_id in ("headrace_risk.release", "headrace_gone.clicks_process", "headrace_.clicks_process"):
    with parsing_for(dag_id):
        task = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
    answers[dag_id] = {{"dags": list(task.dags), "errors": list(task.import_errors.values())}}

import socket, time
from dataclasses import replace
from headrace_airflow.pages.opened_roots import OpenedRoots
from headrace_airflow.roots import Root
from headrace_airflow.roots import ServedRoots

silent = socket.create_server(("127.0.0.1", 0))  # it takes connections, and never answers
os.environ |= {{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}}
own = replace(Root.of_environment(), store="")
address = f"http://127.0.0.1:{{silent.getsockname()[1]}}"
other = replace(own, name="silent", location="s3://silent/root", endpoint=address)
opened = OpenedRoots(lambda: ServedRoots([other, own]))
looks = []
for _ in range(3):
    begun = time.monotonic()
    answered = opened.summaries()
    took = time.monotonic() - begun
    problems = {{name: str(error) for name, error in answered.problems.items()}}
    looks.append({{"found": [root.name for root, _ in answered.read], "problems": problems, "took": took}})
answers["looks"] = looks
print(json.dumps(answers, default=str), flush=True)
os._exit(0)  # nobody waits for the root that does not answer
"""
SEES = """
import os
with open({seen!r}, "a") as file:
    file.write(f"{{sorted(name for name in os.environ if name.startswith('AIRFLOW_CONN_'))}}\\n")
"""


@pytest.fixture(scope="module")
def parsed_dags(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A pipeline ``clicks`` in three roots, one of them without a name; a root that cannot be used; a broken file."""
    folder = tmp_path_factory.mktemp("roots")
    follows = 'schedule=hr.on_assets(["headrace://orders/published", "headrace://sales.orders/published"])'
    for name in ("own", "sales", "risk"):
        (folder / name).mkdir()
        write_pipeline(folder / name, "clicks", options=follows)
    clicks = folder / "risk" / "clicks.py"
    clicks.write_text(clicks.read_text() + SEES.format(seen=str(folder / "seen")))
    write_pipeline(folder / "risk", "wrong").write_text("raise ZeroDivisionError('a mistake of mine')\n")
    (folder / "defaults.py").write_text('import headrace as hr\n\nairflow = hr.airflow(owner="all", tags=["every"])\n')
    (folder / "risky.py").write_text('import headrace as hr\n\nairflow = hr.airflow(owner="risk")\n')
    unused_root = RISK.replace("risk", "unused").replace("s3://unused", "s3://sales")
    (folder / "roots.toml").write_text(f'{SALES}{RISK}airflow = "risky.py"\n{unused_root}')
    environment = {
        "HEADRACE_ROOTS": str(folder / "roots.toml"),
        "HEADRACE_ROOT": (folder / "root").as_uri(),
        "HEADRACE_PIPELINES": str(folder / "own"),
        "HEADRACE_AIRFLOW_DEFAULTS": str(folder / "defaults.py"),
        **{f"AIRFLOW_CONN_{name}_S3": json.dumps({"conn_type": "aws"}) for name in ("SALES", "RISK")},
        "AIRFLOW_CONN_OTHER": json.dumps({"conn_type": "http"}),
    }
    found_answer = python(PARSE, tmp_path_factory.mktemp("airflow"), environment)
    return {**found_answer, "seen": (folder / "seen").read_text().splitlines()}


@pytest.mark.slow
def test_roots_with_a_pipeline_of_one_name_have_dags_pools_and_assets_of_their_own(parsed_dags: Any) -> None:
    process = {name: dag for name, dag in parsed_dags["dags"].items() if name.endswith("clicks_process")}
    assert {name: (dag["pool"], dag["outlets"], dag["uris"]) for name, dag in process.items()} == {
        f"headrace_{root}clicks_process": (
            f"headrace_{root}clicks", [f"headrace_{root}clicks"], [f"headrace://{root}clicks/published"]
        )
        for root in ("", "sales.", "risk.")
    }  # fmt: skip
    assert {"risk", "clicks"} <= {*process["headrace_risk.clicks_process"]["tags"]}
    doc = process["headrace_risk.clicks_process"]["doc"]
    assert "Root `risk`: `s3://risk/headrace`" in doc
    assert "headrace_risk.clicks_recover: started by hand" in doc


@pytest.mark.slow
def test_a_decision_is_a_dag_of_one_root_and_offers_the_pipelines_of_that(parsed_dags: Any) -> None:
    for root in ("sales.", "risk."):
        assert parsed_dags["dags"][f"headrace_{root}release"]["pipelines"] == ["clicks"]
        assert parsed_dags["dags"][f"headrace_{root}release"]["outlets"] == [f"headrace_{root}decided"]
    assert "flights_departures" in parsed_dags["dags"]["headrace_release"]["pipelines"], (
        "the shipped are of no named root"
    )


@pytest.mark.slow
def test_the_root_without_a_name_has_the_dags_that_it_has_alone(parsed_dags: Any) -> None:
    assert "headrace_clicks_process" in parsed_dags["alone"]
    assert parsed_dags["same"]


@pytest.mark.slow
def test_a_schedule_by_asset_means_the_same_root_unless_it_names_one(parsed_dags: Any) -> None:
    waits = {root: parsed_dags["dags"][f"headrace_{root}clicks_process"]["schedule"] for root in ("", "risk.")}
    published_asset = "headrace://sales.orders/published"
    assert waits == {
        "": ["headrace://orders/published", published_asset],
        "risk.": ["headrace://risk.orders/published", published_asset],
    }


@pytest.mark.slow
def test_options_are_the_pipelines_then_the_roots_then_everybodys(parsed_dags: Any) -> None:
    owners = {root: parsed_dags["dags"][f"headrace_{root}clicks_process"]["owner"] for root in ("", "sales.", "risk.")}
    assert owners == {"": "all", "sales.": "all", "risk.": "risk"}
    assert "every" in parsed_dags["dags"]["headrace_risk.clicks_process"]["tags"]


@pytest.mark.slow
def test_what_is_wrong_is_an_import_error_and_takes_no_dag_with_it(parsed_dags: Any) -> None:
    (error,) = parsed_dags["errors"].values()
    assert "wrong.py:1: ZeroDivisionError: a mistake of mine" in error
    assert "root 3 (unused)" in error


@pytest.mark.slow
def test_no_code_of_users_sees_a_connection_to_the_store_of_another_root(parsed_dags: Any) -> None:
    assert {*parsed_dags["seen"][:-1]} == {"['AIRFLOW_CONN_OTHER']"}, "while files are parsed"
    assert parsed_dags["seen"][-1] == "['AIRFLOW_CONN_OTHER', 'AIRFLOW_CONN_RISK_S3']", "in a task"
    assert parsed_dags["kept"] == ["AIRFLOW_CONN_OTHER", "AIRFLOW_CONN_RISK_S3", "AIRFLOW_CONN_SALES_S3"]


@pytest.mark.slow
def test_a_task_builds_the_dag_of_its_root_alone(parsed_dags: Any) -> None:
    assert parsed_dags["task"]["dags"] == ["headrace_risk.clicks_process"]
    assert parsed_dags["task"]["errors"] == {}
    assert parsed_dags["headrace_risk.release"] == {"dags": ["headrace_risk.release"], "errors": []}
    (missing_error,) = parsed_dags["headrace_gone.clicks_process"]["errors"]
    assert "serves no root 'gone'" in missing_error
    assert parsed_dags["headrace_.clicks_process"] == {"dags": [], "errors": []}


@pytest.mark.slow
def test_a_root_that_does_not_answer_keeps_nobody_waiting_twice(parsed_dags: Any) -> None:
    for look in parsed_dags["looks"]:
        assert look["found"] == [""]
        assert "s3://silent/root has not answered" in look["problems"]["silent"]
    first, *others = (look["took"] for look in parsed_dags["looks"])
    assert first >= 2
    assert max(others) < first / 2
