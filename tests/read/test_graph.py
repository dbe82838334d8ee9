"""The graph of snapshots: what each was made from, drawn in lanes, and what leads to it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.read.snapshots.catalog_log import Lanes, snapshot_graph
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from headrace_snapshots.store.local import MemoryStore
from tests.snapshots.catalog_helpers import commit_some

OLDER_PARENT = "older than what is drawn"


@st.composite
def forests(draw: st.DrawFn) -> dict[str, str | None]:
    """Snapshots, newest first, and what each was made from."""
    count = draw(st.integers(1, 12))
    parents: dict[str, str | None] = {}
    for number in range(count):
        older = [str(other) for other in range(number + 1, count)]
        parents[str(number)] = draw(st.sampled_from([None, OLDER_PARENT, *older]))
    return parents


def draw_graph(forest: dict[str, str | None]) -> list[str]:
    lanes, lines = Lanes(), []
    for name, parent in forest.items():
        snapshot = lanes.draw_snapshot(name, parent, "*")
        lines += [*snapshot.above, f"{snapshot.beside}{name}", *snapshot.below]
    return lines


def leads_to(lines: list[str], row: int, column: int) -> str | None:
    """The snapshot that the lane at ``column`` below ``row`` leads to, None if it ends or leaves the drawing."""
    moving = False
    for line in lines[row + 1 :]:
        characters = dict(enumerate(line))
        if characters.get(column) == "*":
            return line.split()[-1]
        is_own = characters.get(column) == "|"
        if characters.get(column - 1) == "/" and (moving or not is_own):
            column, moving = column - 2, True
        elif is_own:
            moving = False
        else:
            return None
    return None


@given(forests())
def test_a_lane_leads_from_each_snapshot_to_the_one_that_it_was_made_from(forest: dict[str, str | None]) -> None:
    lines = draw_graph(forest)
    for number, line in enumerate(lines):
        if "*" in line:
            parent = forest[line.split()[-1]]
            expected = None if parent == OLDER_PARENT else parent
            assert leads_to(lines, number, line.index("*")) == expected, lines


def test_lanes_join_as_those_of_git_do() -> None:
    forest = {"a": "d", "b": "e", "c": "d", "d": "e", "e": None}
    assert draw_graph(forest) == ["* a", "| * b", "| | * c", "| |/", "|/|", "* | d", "|/", "* e"]


@pytest.fixture
def catalog() -> Catalog:
    """Two epochs published, a branch of one more, main rolled back and gone on."""
    found_catalog = Catalog(MemoryStore(), "clicks", new_id=map("{:016}".format, iter(range(1, 10**6))).__next__)
    claim = found_catalog.claim(MAIN, "a run")
    first, second = commit_some(found_catalog, claim, 2)
    found_catalog.publish(second, None)
    found_catalog.fork("mine", second)
    commit_some(found_catalog, found_catalog.claim("mine", "somebody"), 1)
    commit_some(found_catalog, claim, 1)
    found_catalog.tag("good", first)
    found_catalog.rollback(MAIN, second, "a wrong file")
    commit_some(found_catalog, found_catalog.claim(MAIN, "a run"), 1)
    return found_catalog


def test_a_graph_names_branches_tags_and_doings(catalog: Catalog) -> None:
    lines = [*snapshot_graph(catalog, limit=20).lines()]
    refs = catalog.head().refs
    shapes = [re.match(r"[*o|/ ]*", line)[0].rstrip() for line in lines]  # type: ignore[index]
    assert shapes == ["*", "|", "|", "| o", "|/", "| *", "|/", "|", "*", "*"], lines
    assert lines[0].startswith(f"* {refs['main']} (main) ")
    assert lines[1].endswith("a wrong file")
    assert " tag good: - -> " in lines[2]
    assert f"| * {refs['mine']} (mine) " in lines[5]
    assert lines[5].endswith("epoch 2 on mine")
    assert f"* {refs['published']} (published) " in lines[8]
    assert f"* {refs['tags/good']} (tag: good) " in lines[9]
    assert not any("claim" in line or " publish " in line for line in lines)


def test_a_graph_as_json_has_its_edges(catalog: Catalog) -> None:
    document = snapshot_graph(catalog, limit=20).to_json()
    parents = {snapshot["snapshot"]: snapshot["parent"] for snapshot in document["snapshots"]}
    assert len(parents) == 5
    for name, parent in parents.items():
        assert catalog.manifest(name).parent == parent
    assert {tuple(edge) for edge in document["edges"]} == {(a, b) for a, b in parents.items() if b}
    assert [each["reached"] for each in document["snapshots"]].count(False) == 1
    assert document["refs"]["good"] == catalog.head().refs["tags/good"]
    assert [entry["kind"] for entry in document["entries"]] == ["rollback", "tag", "fork"]


def test_an_older_part_of_the_log_is_drawn_as_it_was_then(catalog: Catalog) -> None:
    tagged_numbers = next(entry.number for entry in catalog.entries() if entry.kind == "tag")
    graph = snapshot_graph(catalog, limit=20, before_entry=tagged_numbers)
    assert "good" not in graph.to_json()["refs"]
    assert all(snapshot["reached"] for snapshot in graph.to_json()["snapshots"]), "nothing was rolled back yet"


def test_a_graph_costs_a_request_for_each_entry_and_reads_no_manifest(catalog: Catalog) -> None:
    reader = Catalog(catalog.store, "clicks")
    requests_before = catalog.store.requests.snapshot()
    graph = snapshot_graph(reader, limit=3)
    assert len(graph.rows) == 3
    assert catalog.store.requests.since(requests_before)["get"] <= 3 + 3, (
        "rows, a claim between them, the hint and the end"
    )


def test_readers_get_the_graph_by_the_root(tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    catalog = Catalog(open_store(root), "clicks")
    (snapshot,) = commit_some(catalog, catalog.claim(MAIN, "a run"), 1)
    assert str(hr.open(root)["clicks"].graph()).startswith(f"* {snapshot} (main) ")
