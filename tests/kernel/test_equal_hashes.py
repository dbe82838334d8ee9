"""Keys whose hashes are equal are told apart: all that the kernel does, with a hash of three bits, and of none.

``make exhaustive`` runs the cases of the conformance suite with both, CI with three bits: some hashes differ then.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace.kernel import keys
from headrace_lab.conformance.on_local import LocalExecutor
from headrace_lab.conformance.runner import CaseStatus, run_file
from headrace_lab.reference import run_pipeline
from headrace_lab.sizes import set_sizes
from tests.kernel.differential import check, run_on_kernel
from tests.kernel.test_distribution import check_parts
from tests.process.random_runs import SCHEDULES, Schedule
from tests.process.random_runs import check as check_runs
from tests.process.wider import wider_scenarios
from tests.reference.scenarios import Scenario, scenarios
from tests.reference.strategies import examples

ALL = os.environ.get("HEADRACE_INTERLEAVINGS") == "all"
FILES = sorted((Path(__file__).parents[1] / "conformance/cases").glob("*.json"))


def keys_in(case: object) -> set[object]:
    """The keys that elements and panes of a case name."""
    inner = case.values() if isinstance(case, dict) else case if isinstance(case, list) else ()
    own = {json.dumps(case["key"])} if isinstance(case, dict) and "key" in case else set()
    return own.union(*map(keys_in, inner))


CASES = [
    pytest.param(file, case["name"], id=case["name"])
    for file in FILES
    for case in json.loads(file.read_text())["cases"]
    if len(keys_in(case)) > 1 or "stages" in case  # one key has no other with which its hash could be equal
]


@pytest.fixture(autouse=True, scope="module", params=[3, 0], ids=["3 bits", "0 bits"])
def bits(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many bits the hash of a key has."""
    with set_sizes(hash_bits=0 if request.param == 0 else 7 << 61):
        yield request.param


def test_many_keys_share_a_hash(bits: int) -> None:
    assert len(np.unique(keys.hash_keys([pa.array(range(1000))]))) == 2**bits


@pytest.mark.slow
@pytest.mark.parametrize("bits", [3, 0] if ALL else [3], indirect=True, scope="module")
@pytest.mark.parametrize(("file", "name"), CASES)
def test_conformance_cases_of_several_keys_pass(bits: int, file: Path, name: str) -> None:
    results = run_file(file, LocalExecutor(), name)
    assert not [r.name for r in results if r.required and r.status is not CaseStatus.PASSED]


@pytest.mark.slow
@given(scenarios())
@settings(examples(60), suppress_health_check=list(HealthCheck))
def test_random_pipelines_give_what_the_reference_gives(scenario: Scenario) -> None:
    pipeline = replace(scenario.pipeline, deduplicate=None)  # operators come behind it
    note(f"{pipeline!r}")
    expected = run_pipeline(pipeline, scenario.epochs)
    for result, reference in zip(run_on_kernel(pipeline, scenario.epochs), expected, strict=True):
        check(result, reference)


@given(scenarios(), st.integers(1, 5), st.lists(st.integers(0, 30), max_size=3))
@settings(examples(30), suppress_health_check=list(HealthCheck))
def test_so_do_shares_and_parts(scenario: Scenario, number: int, places: list[int]) -> None:
    note(f"{scenario.pipeline!r}")
    check_parts(scenario, number, places)


@pytest.mark.slow
@given(wider_scenarios(), SCHEDULES)
@settings(examples(15, fewest=3), suppress_health_check=list(HealthCheck))
def test_so_do_runs_over_files(scenario: Scenario, schedule: Schedule) -> None:
    check_runs(scenario, schedule, ["local"])
