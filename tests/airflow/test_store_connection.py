"""What an Airflow connection to the root's store becomes, and who has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import python

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

SECRET = "hush/4711+of nobody"
FORMS = {
    "keys": {"login": "id", "password": SECRET},
    "all": {
        "login": "id", "password": SECRET,
        "extra": {
            "aws_session_token": SECRET, "endpoint_url": "http://s3.local", "region_name": "eu-north-1",
            "role_arn": "arn:aws:iam::1:role/x", "external_id": "y", "server_side_encryption": "aws:kms",
            "sse_kms_key_id": "k",
        },
    },
    "profile": {"extra": {"profile_name": "sales", "region_name": ""}},
    "nothing": {},
    "generic": {"conn_type": "generic", "login": "id", "password": SECRET},
    "type": {"conn_type": "ftp"},
    "half": {"password": SECRET},
    "both": {"login": "id", "password": SECRET, "extra": {"profile_name": "sales"}},
    "unknown": {"login": "id", "password": SECRET, "extra": {"verify": False, "config_kwargs": {}}},
    "number": {"login": "id", "password": SECRET, "extra": {"region_name": 1}},
    "text": {"login": "id", "password": SECRET, "extra": SECRET},
}  # fmt: skip
OTHERS = {
    "own": {"conn_type": "generic", "extra": {"ACME_KEY": SECRET, "ACME_PLACE": "north"}},
    "unknown": {"conn_type": "generic", "extra": {"BETA_KEY": SECRET}},
    "type": {"conn_type": "acme", "extra": {"ACME_KEY": SECRET}},
    "no name": {"conn_type": "generic", "extra": {"ACME_KEY=1": SECRET}},
    "any": {"conn_type": "generic", "extra": {"PATH": SECRET}},
}
"""Connections of a root whose store is another distribution's, which has variables of S3 beside its own."""

ASK = f"""
import json, os
from dataclasses import replace
from airflow.sdk import Connection
from headrace.errors import HeadraceError
from headrace.ext.stores import StoreScheme
from headrace_airflow.connection import store_variables, variables_of
from headrace_airflow.roots import Root
from headrace_airflow.connection import KeptVariables, reaching_store

OF_OTHERS = StoreScheme("acme://bucket", "acme:Store", variables=("AWS_", "ACME_", ""), secrets=("ACME_KEY",))

def asked(name, form, scheme=None):
    form = {{"conn_type": "aws", **form}}
    extra = form.pop("extra", None)
    text = json.dumps(extra) if isinstance(extra, dict) else extra
    try:
        found = variables_of(Connection(conn_id=name, extra=text, **form), scheme)
    except HeadraceError as error:
        return {{"code": error.code, "message": str(error), "chained": repr((error.__cause__, error.__context__))}}
    assert {SECRET!r} not in repr(found)
    return {{"values": dict(found.values), "without": found.without}}

found = {{name: asked(name, form) for name, form in json.loads({json.dumps(FORMS)!r}).items()}}

others = {{name: asked(name, form, OF_OTHERS) for name, form in json.loads({json.dumps(OTHERS)!r}).items()}}

def aws():
    return {{name: value for name, value in os.environ.items() if name.startswith("AWS_")}}

before = aws()
with reaching_store(Root.of_environment()):
    inside = aws()
assert aws() == before
try:
    with reaching_store(Root.of_environment()):
        raise HeadraceError("seen: " + os.environ["AWS_SECRET_ACCESS_KEY"])
except Exception as error:
    failed = str(error)
assert aws() == before
kept = KeptVariables(Root.of_environment()).get().apply_to(os.environ)
assert {{name: kept[name] for name in inside}} == inside
assert aws() == before

def at(endpoint):
    return store_variables(replace(Root.of_environment(), name="sales", endpoint=endpoint))

with_endpoint = at("http://s3.local")
assert with_endpoint.values["AWS_SECRET_ACCESS_KEY"] == os.environ["WANTED"]
os.environ["AIRFLOW_CONN_STORE"] = json.dumps({{"conn_type": "aws", "extra": {{"endpoint_url": "http://s3.local/"}}}})
assert at("http://s3.local").values == {{"AWS_ENDPOINT_URL": "http://s3.local"}}
try:
    at("http://other")
    raise AssertionError("two endpoints")
except HeadraceError as error:
    two_endpoints = str(error)

os.environ["HEADRACE_STORE_CONN"] = "absent"
try:
    with reaching_store(Root.of_environment()):
        raise AssertionError("inside")
except Exception as error:
    absent = str(error)
os.environ["HEADRACE_STORE_CONN"] = ""
assert not store_variables(Root.of_environment()).values
with reaching_store(Root.of_environment()):
    assert aws() == before
print(json.dumps({{"forms": found, "others": others, "inside": inside, "failed": failed, "absent": absent,
                  "endpoint": [dict(with_endpoint.values), with_endpoint.without], "two endpoints": two_endpoints}}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What becomes of connections; one process for all."""
    folder: Path = tmp_path_factory.mktemp("store-connection")
    environment = {
        "HEADRACE_STORE_CONN": "store",
        "WANTED": SECRET,
        "AIRFLOW_CONN_STORE": json.dumps({"conn_type": "aws", "login": "id", "password": SECRET}),
        "AWS_PROFILE": "of-the-machine",
        "AWS_SESSION_TOKEN": "old",
        "AWS_REGION": "eu-west-1",
    }
    return python(ASK, folder, environment)


def test_what_a_connection_says_becomes_variables(answers: Any) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET}
    forms = answers["forms"]
    assert forms["keys"]["values"] == forms["generic"]["values"] == keys
    assert {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"} <= {*forms["keys"]["without"]}
    assert forms["all"]["values"] == {
        **keys, "AWS_SESSION_TOKEN": SECRET, "AWS_ENDPOINT_URL": "http://s3.local", "AWS_REGION": "eu-north-1",
        "HEADRACE_S3_ROLE_ARN": "arn:aws:iam::1:role/x", "HEADRACE_S3_EXTERNAL_ID": "y",
        "HEADRACE_S3_ENCRYPTION": "aws:kms", "HEADRACE_S3_KMS_KEY_ID": "k",
    }  # fmt: skip
    assert forms["profile"]["values"] == {"AWS_PROFILE": "sales"}
    assert "AWS_ACCESS_KEY_ID" in forms["profile"]["without"]
    assert forms["nothing"] == {"values": {}, "without": []}  # the machine's role, for one


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("type", "has the type ftp: make it one of type aws"),
        ("half", "half a key"),
        ("both", "keys and the profile sales"),
        ("unknown", "has config_kwargs, verify in extra, which Headrace does not know"),
        ("number", "no text"),
        ("text", "no JSON object in extra"),
    ],
)
def test_a_mistake_in_a_connection_is_said_without_its_values(answers: Any, form: str, message: str) -> None:
    form_fields = answers["forms"][form]
    assert form_fields["code"] == "config.store_connection"
    assert message in form_fields["message"]
    assert f"connection {form} " in form_fields["message"]
    assert SECRET not in json.dumps(form_fields)


def test_a_connection_has_variables_of_a_store_of_others_by_name(answers: Any) -> None:
    others = answers["others"]
    assert others["own"]["values"] == {"ACME_KEY": SECRET, "ACME_PLACE": "north"}
    assert "BETA_KEY in extra, which Headrace does not know" in others["unknown"]["message"]
    assert others["unknown"]["message"].endswith("ACME_...")
    assert "make it one of type generic" in others["type"]["message"]
    assert SECRET not in others["unknown"]["message"] + others["type"]["message"]


def test_no_other_variable_comes_from_a_connection(answers: Any) -> None:
    """Neither one that no process can have, nor any where a scheme has a beginning without letters."""
    others = answers["others"]
    for name, variable in (("no name", "ACME_KEY=1"), ("any", "PATH")):
        assert others[name]["code"] == "config.store_connection"
        assert f"{variable} in extra, which Headrace does not know" in others[name]["message"]
        assert SECRET not in others[name]["message"]


def test_a_task_has_the_keys_while_it_runs_and_only_those(answers: Any) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET}
    assert answers["inside"].items() >= keys.items()
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & {*answers["inside"]}
    assert answers["inside"]["AWS_REGION"] == "eu-west-1"
    assert "<AWS_SECRET_ACCESS_KEY>" in answers["failed"]
    assert SECRET not in answers["failed"]


def test_the_endpoint_of_a_root_is_reached_with_the_keys_of_its_connection(answers: Any) -> None:
    values, values_without = answers["endpoint"]
    assert values["AWS_ENDPOINT_URL"] == "http://s3.local"
    assert {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS"} <= {*values_without}
    assert "endpoint_url http://s3.local, and root sales the endpoint http://other" in answers["two endpoints"]


def test_a_connection_that_is_not_there_is_named(answers: Any) -> None:
    assert "there is no Airflow connection absent" in answers["absent"]
    assert "HEADRACE_STORE_CONN" in answers["absent"]
