"""What is new is a set difference of names: whatever is stored where, and however a listing comes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ext.sources import SourceSplit
from headrace.sources.file_planning import ChangedFileError, KnownNames, is_input, listed_inputs, unread_names
from headrace.sources.names_file import group_bounds, merge_tables, names_table, table_of, to_bytes
from headrace.sources.progress import KnownVersion
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store import LocalStore, ObjectInfo, open_store
from headrace_snapshots.store.local import MemoryStore
from tests.minio_bucket import BUCKET
from tests.reference.strategies import examples

NAMES = st.text("aäZz~!/=\udc80🚰0", min_size=1, max_size=3)
VERSIONS = st.builds(lambda size, etag: (size, etag), st.integers(0, 2), st.sampled_from(["x", "y"]))
FILES = st.dictionaries(NAMES, VERSIONS, max_size=25)


def splits(files: dict[str, tuple[int, str]]) -> list[SourceSplit]:
    return [SourceSplit(path, size, etag, f"digest of {etag}") for path, (size, etag) in files.items()]


@examples(400)
@given(
    stored_files=st.lists(FILES, max_size=4), recent=FILES, listed_files=FILES, order=st.randoms(use_true_random=False)
)
def test_news_are_what_has_no_known_name_and_what_is_listed_otherwise(
    stored_files, recent, listed_files, order
) -> None:  # type: ignore[no-untyped-def]
    with set_sizes(names_file_rows=3, names_looked_up=4):
        contents = [to_bytes(names_table(splits(files))) for files in stored_files if files]
        known_names = KnownNames({file.path: file for file in splits(recent)}, contents)
        infos = [ObjectInfo(path, *version) for path, version in listed_files.items()]
        ascending = sorted(infos, key=lambda info: info.path.encode("utf-8", "surrogateescape"))
        shuffled_infos = [*infos]
        order.shuffle(shuffled_infos)
        was = {path: version for files in (*stored_files, recent) for path, version in files.items()}
        for listing in (
            ascending,
            shuffled_infos,
        ):  # a store that lists in another order loses nothing, and repeats nothing
            news = {info.path: version for info, version in known_names.find_news(listing)}
            assert {path for path, version in news.items() if version is None} == listed_files.keys() - was.keys()
            changed_paths = {path for path in listed_files.keys() & was.keys() if listed_files[path] != was[path]}
            assert {path for path, version in news.items() if version is not None} == changed_paths
            assert all(news[path] == KnownVersion.from_file(*splits({path: was[path]})) for path in changed_paths)


@examples(200)
@given(st.lists(FILES, min_size=1, max_size=4))
def test_of_one_name_the_newest_layer_counts(layers) -> None:  # type: ignore[no-untyped-def]
    together_versions_by_path = {path: version for files in layers for path, version in files.items()}
    table = merge_tables([names_table(splits(files)) for files in layers])
    assert table.equals(names_table(splits(together_versions_by_path)))
    assert table_of(to_bytes(table)).equals(table)
    assert group_bounds(to_bytes(table)) == []  # one group of rows


def test_a_listing_in_ranges_is_the_listing() -> None:
    class Pages(MemoryStore):
        lists_in_pages = True

    store = Pages("names-ranges")
    for number in range(40):
        store.write(f"landing/{number % 7}/{number:02}.json", b"")
    whole = [*listed_inputs(store, "landing", ())]
    requests_before = store.requests.snapshot()
    cut = ["landing/1/08.json", "landing/3/zz", "landing/3/zzz", "landing/6/99"]
    assert [*listed_inputs(store, "landing", (), bounds=cut)] == whole
    assert store.requests.since(requests_before)["list"] == 5
    assert [*listed_inputs(store, "landing", (), "landing/3/10.json", cut)] == [
        info for info in whole if info.path > "landing/3/10.json"
    ]


def test_a_changed_file_is_an_error_whatever_its_name_and_a_copy_is_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for name in ("a", "b"):
        store.write(f"landing/{name}", name.encode())
    files = [store.digested(f"landing/{name}") for name in ("a", "b")]
    read = [SourceSplit(file.path, file.size, file.etag, file.digest) for file in files]
    known_names = KnownNames(stored_names=[to_bytes(names_table(read))])
    assert [*unread_names(store, "landing", known_names, ())] == []
    (tmp_path / "landing" / "a").unlink()
    (tmp_path / "landing" / "a").write_bytes(b"a")  # copied: another time
    assert [*unread_names(store, "landing", known_names, ())] == []
    assert [*known_names.confirmed_splits] == ["landing/a"]
    for content in (b"c", b"longer"):
        (tmp_path / "landing" / "a").write_bytes(content)
        with pytest.raises(ChangedFileError, match="landing/a has changed"):
            [*unread_names(store, "landing", known_names, ())]


@pytest.mark.parametrize(
    "name", ["a.json", "_dt=2024-01-01/a.json", "x/_of=1/y/a", "part-00000", "a.part.gz", "_x=1/a.JSON", "tmp", "ü"]
)
def test_input(name: str) -> None:
    assert is_input(name, ())


@pytest.mark.parametrize(
    "name",
    ["_a.json", ".a.json", "_tmp/a.json", "x/.y/a.json", ".dt=1/a", "dt=1/_a=1.json", "a._COPYING_", "a.tmp", "a.TMP"]
    + [f"dt=1/a{ending}" for ending in (".part", ".Part", ".filepart", ".crdownload", ".inprogress", ".INPROGRESS")],
)
def test_no_input(name: str) -> None:
    assert not is_input(name, ())


def test_suffixes_alone_decide_over_endings_where_there_are_some() -> None:
    assert is_input("a.part", (".part",))
    assert not is_input("a.json", (".part",))
    assert not is_input("_a.part", (".part",))


def test_ranges_of_a_bucket_together_are_its_listing(minio: str) -> None:
    store = open_store(f"s3://{BUCKET}/names-ranges")
    names = [f"landing/{number % 5}/{number:02}.json" for number in range(12)]
    for name in names:
        store.write(name, b"")
    requests_before = store.requests.snapshot()
    listed_paths = [
        info.path for info in listed_inputs(store, "landing", (), bounds=["landing/1/06.json", "landing/3/0"])
    ]
    assert listed_paths == sorted(names)
    assert store.requests.since(requests_before)["list"] == 3
