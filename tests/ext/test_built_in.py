"""Headrace's own parts come in by the door of others' parts, and by one table: nothing scans for them, nobody takes
over their names, and they are found in an archive without metadata.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from headrace.built_in import BUILT_IN, EXTRAS, PORTS
from headrace.ext.formats import FORMATS
from headrace.ext.stores import SCHEMES, open_store
from headrace.installed import BrokenEntryPointError, EntryPointGroup, NotRegisteredError
from tests.distributions import write_distribution

ROOT = Path(__file__).resolve().parents[2]
AIRFLOW = "headrace.dag_families"
PLACES = [(group, name) for group, places in BUILT_IN.items() for name in places]
MARKS = (pytest.mark.airflow, pytest.mark.slow)
USE_ARCHIVE = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.path = [place for place in sys.path if "/jobs" not in place and "/snapshots" not in place]
sys.path.insert(0, {archive!r})
import importlib.metadata
def scanned(**group):
    raise AssertionError(f"metadata of {{group}} were looked for")
importlib.metadata.distributions = scanned
import headrace
assert headrace.__file__.startswith({archive!r}), headrace.__file__
from headrace.built_in import BUILT_IN
from headrace.installed import EntryPointGroup
own = [(group, name) for group in BUILT_IN if group != {airflow!r} for name in BUILT_IN[group]]
found = [EntryPointGroup(group, "part").get(name) for group, name in own]
print(len(found), None in found)
"""


@pytest.mark.parametrize(
    "group, name", [pytest.param(group, name, marks=MARKS if group == AIRFLOW else ()) for group, name in PLACES]
)
def test_each_own_part_is_there_and_is_what_others_must_be(group: str, name: str) -> None:
    module, _, port = PORTS[group].partition(":")
    assert isinstance(EntryPointGroup(group, "part")[name], getattr(import_module(module), port))


def test_code_asks_for_extras_that_the_table_has() -> None:
    """``require_extra("kafka", ...)``, or ``partial(require_extra, "kafka", ...)``; ``extra`` is that of a place."""
    names = set()
    for folder in ("jobs/headrace", "snapshots/headrace_snapshots", "plugins/headrace_airflow"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                words = [node.func, *node.args] if isinstance(node, ast.Call) else []
                function_names = [word.id if isinstance(word, ast.Name) else "" for word in words[:2]]
                if "require_extra" in function_names:
                    name = words[function_names.index("require_extra") + 1]
                    names.add(name.value if isinstance(name, ast.Constant) else ast.unparse(name))
    assert names == {*EXTRAS} - {"s3"} | {"extra"}


class Watcher(DistributionFinder):
    """A finder that Python asks for metadata beside its own: it has none, and is told of each look."""

    def __init__(self, note_look: Callable[[list[str]], None]) -> None:
        self._note_look = note_look

    def find_spec(self, *_: object) -> None:
        return None

    def find_distributions(
        self,
        context: DistributionFinder.Context = DistributionFinder.Context(),  # noqa: B008
    ) -> Iterator[Distribution]:
        self._note_look(context.path)
        return iter(())


@contextmanager
def watch_looks(note_look: Callable[[list[str]], None]) -> Iterator[None]:
    """Inside, each look at metadata is noted before it is made."""
    watcher = Watcher(note_look)
    sys.meta_path.insert(0, watcher)
    try:
        yield
    finally:
        sys.meta_path.remove(watcher)


def test_own_parts_are_found_without_a_look_at_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_look(path: list[str]) -> None:
        raise AssertionError(f"metadata in {path} were looked for")

    monkeypatch.syspath_prepend("/nowhere/before")
    with watch_looks(refuse_look):
        assert [FORMATS[name].name for name in FORMATS.built_in] == ["JSON", "CSV", "Parquet"]
        assert "csv" in FORMATS
        with pytest.raises(AssertionError, match="were looked for"):
            FORMATS.names()


def _declare(site: Path, version: str, name: str) -> None:
    write_distribution(
        f"""
        [project]
        name = "acme-formats"
        version = "{version}"
        [project.entry-points."headrace.formats"]
        {name} = "acme:{name.upper()}"
        """,
        site,
    )


def test_a_place_that_changes_is_looked_at_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places_by_look: list[list[str]] = []
    monkeypatch.syspath_prepend(str(tmp_path))
    FORMATS.names()
    with watch_looks(places_by_look.append):
        FORMATS.names()
        assert places_by_look == []
        _declare(tmp_path, "1.0", "excel")
        assert "excel" in FORMATS.names()
    assert places_by_look == [[str(tmp_path)]]


def test_of_two_distributions_of_one_name_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, name in (("1.0", "old"), ("2.0", "new")):
        _declare(tmp_path / version, version, name)
        monkeypatch.syspath_prepend(str(tmp_path / version))
    assert [*FORMATS.names()] == ["json", "csv", "parquet", "new"]


def test_nobody_takes_over_the_name_of_an_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = """
        [project]
        name = "acme-csv"
        version = "1.2"
        [project.entry-points."headrace.formats"]
        csv = "acme_csv:CSV"
        excel = "acme_csv:EXCEL"
    """
    write_distribution(project, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = FORMATS["csv"]
    for look in (FORMATS.names, lambda: FORMATS["excel"], lambda: "excel" in FORMATS):
        with pytest.raises(BrokenEntryPointError) as error:
            look()
        assert str(error.value) == (
            "the file format 'csv' is Headrace's own, and nobody can take it over (as does the entry point csv = "
            "acme_csv:CSV in headrace.formats of acme-csv 1.2); give that another name, or uninstall the package"
        )
    assert FORMATS["csv"] is own
    assert SCHEMES.names() == ["file", "s3", "memory"]
    assert open_store("memory://others-go-on").uri == "memory://others-go-on"


def test_a_name_that_nobody_has_is_said_with_those_that_somebody_has() -> None:
    with pytest.raises(NotRegisteredError, match="it is one of json, csv, parquet, or comes with a package that has"):
        FORMATS["excel"]


@pytest.mark.slow
def test_own_parts_are_found_in_an_archive_without_metadata(tmp_path: Path) -> None:
    archive = tmp_path / "headrace_packages.zip"
    with ZipFile(archive, "w") as zip_file:
        for folder, package in (("jobs", "headrace"), ("snapshots", "headrace_snapshots")):
            for file in sorted((ROOT / folder / package).rglob("*.py*")):
                if file.suffix in (".py", ".pyi"):
                    zip_file.write(file, file.relative_to(ROOT / folder))
    assert find_spec("headrace") is not None
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", USE_ARCHIVE.format(archive=str(archive), airflow=AIRFLOW)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    own = [name for group, name in PLACES if group != AIRFLOW]
    assert result.stdout == f"{len(own)} False\n", result.stderr
