"""Runs over an S3 store that fails: its answers are late, lost, cut off, wrong, or there are none for a while."""

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import headrace as hr
from headrace.errors import StoreUnavailableError, UnknownOutcomeError
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from tests.faults.scenarios import PIPELINES, land, results
from tests.minio_bucket import BUCKET
from tests.s3_proxy import Proxy, proxying

pytestmark = [pytest.mark.s3, pytest.mark.slow]
FAULTS = (503, 500, 429, "drop", "lose", "cut", "truncate", "etag", "slow")
RATE = 0.15
REQUESTS = 5_000
"""More than a run makes."""


@pytest.fixture
def proxy(minio: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxying(minio) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        yield server


def land_files(folder: Path) -> str:
    """A root in S3 with the files of the scenarios."""
    land(folder)
    root = f"s3://{BUCKET}/{uuid4().hex}"
    for file in sorted(folder.rglob("*.jsonl")):
        open_store(root).write(str(file.relative_to(folder)), file.read_bytes())
    return root


def run(name: str, root: str) -> None:
    hr.open(root)[PIPELINES[name]].run(executor="local")


def undisturbed_results(name: str, folder: Path) -> dict[str, list[str]]:
    """What a run of the same files on local files gives."""
    land(folder)
    run(name, folder.as_uri())
    return results(PIPELINES[name], folder.as_uri())


def check(name: str, root: str, expected: dict[str, list[str]]) -> None:
    assert results(PIPELINES[name], root) == expected
    check_catalog(open_store(root), name)
    damaged_paths = {problem.path for problem in hr.open(root)[name].fsck(deep=True).damage}
    assert damaged_paths <= {f"{name}/log-hint.json"}


@pytest.mark.parametrize("name", PIPELINES)
def test_what_the_store_answers_wrong_now_and_then_changes_nothing(proxy: Proxy, tmp_path: Path, name: str) -> None:
    root, expected = land_files(tmp_path / "landed"), undisturbed_results(name, tmp_path / "local")
    dice = random.Random(name)
    proxy.spoil = [dice.choice(FAULTS) if dice.random() < RATE else "pass" for _ in range(REQUESTS)]
    run(name, root)
    assert 0 < len(proxy.spoil) < REQUESTS
    proxy.spoil = []
    check(name, root, expected)


@pytest.mark.parametrize("fault", [503, "drop", "lose", "truncate"])
@set_sizes(s3_attempts=3)
def test_a_store_that_goes_away_ends_the_run_with_a_clear_error(proxy: Proxy, tmp_path: Path, fault: int | str) -> None:
    """And the next run ends as if nothing had been, wherever that was."""
    root, name = land_files(tmp_path / "landed"), "one_stage"
    expected = undisturbed_results(name, tmp_path / "local")
    for good in (5, 15, 30):
        proxy.spoil = [*["pass"] * good, *[fault] * REQUESTS]
        with pytest.raises((StoreUnavailableError, UnknownOutcomeError)) as error:
            run(name, root)
        assert "s3://" in str(error.value)
    proxy.spoil = []
    run(name, root)
    check(name, root, expected)
