"""Facts that an expiry leaves to the next one: what is taken over is what was read."""

from datetime import UTC

from catalog_helpers import commit_some
from hypothesis import given
from hypothesis import strategies as st

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.gc_roots import FactsIndex, NodeFacts, SnapshotFacts
from headrace_snapshots.store.local import MemoryStore

NAMES = st.sampled_from([f"p/data/{number:08d}-a/panes-{number}.parquet" for number in range(30)])
IDS = st.integers(0, 15).map("{:032x}".format)


def tuples(texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(texts, max_size=8).map(lambda names: tuple(sorted(names)))


@st.composite
def facts(draw: st.DrawFn) -> FactsIndex:
    """Facts of snapshots that share names, and of all nodes that they name."""
    index = FactsIndex(Catalog(MemoryStore(), "p"))
    index.nodes = {f"{number:032x}": NodeFacts(draw(tuples(NAMES)), ()) for number in range(16)}
    for number in range(draw(st.integers(0, 6))):
        place = (f"s{number}", draw(st.integers(0, 3)), "main", number, None if number == 0 else f"s{number - 1}")
        moment = draw(st.datetimes(timezones=st.just(UTC)))
        index.snapshots[f"s{number}"] = SnapshotFacts(*place, moment, draw(tuples(NAMES)), draw(tuples(IDS)))
    index.notes = draw(st.dictionaries(NAMES, st.text()))
    return index


@given(facts())
def test_what_is_remembered_is_what_was_known(index: FactsIndex) -> None:
    index_again = FactsIndex(index.catalog)
    index_again.restore_facts(index.encode_facts(index.snapshots))
    assert index_again.notes == index.notes
    for name, snapshot in index.snapshots.items():
        facts_again = index_again.snapshots[name]
        assert facts_again.created_at == snapshot.created_at
        assert {*facts_again.files} == {*snapshot.files}
        assert {*facts_again.nodes} == {*snapshot.nodes}
    for name, node in index_again.nodes.items():
        assert {*node.files} == {*index.nodes[name].files}


def test_what_cannot_be_read_is_left_to_who_asks_for_it(memory: MemoryStore) -> None:
    catalog = Catalog(memory, "p")
    ids = commit_some(catalog, catalog.claim("main", "run"), 3)
    memory.write(f"p/manifests/{ids[1]}.json", b"damaged")
    facts = FactsIndex(Catalog(memory, "p"))
    facts.learn_snapshots([*ids, "gone"])
    assert {*facts.snapshots} == {ids[0], ids[2]}
