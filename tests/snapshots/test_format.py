"""Manifests, entries and index nodes survive storage, and say what is wrong when they do not."""

import base64
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RestoreError
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError, encode_object
from headrace_snapshots.format.files import IndexNode
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.log import Entry
from headrace_snapshots.protocol.moves import Kind
from tests.snapshots.strategies import manifests

TIME = "2026-01-01T00:00:00Z"
FILE = {"path": "p", "rows": 1, "bytes": 4, "sha256": "0"}
SAMPLE = Manifest("s1", "p", "f", "main", 3, "s0", 2, TIME, {"watermark": None}, {}, {}, {}, {"rows": 7}, {}, {}, {})
LONG = SAMPLE.replace(counts={f"rows of part {part}": part for part in range(1_000)})
ENTRY = Entry(4, "w", TIME, Kind.COMMIT, "main", 2, {"main": (None, "s")}, {"main": "s"}, {"main": 2}, 0, "", None)


@given(manifests())
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert Manifest.from_bytes(manifest.to_bytes(), "x") == manifest


@given(manifests())
def test_a_manifest_that_names_nodes_is_read_as_it_was_written(manifest: Manifest) -> None:
    with set_sizes(files_in_a_manifest=0):
        stored_manifest, nodes = manifest.in_nodes(None, lambda: "writer")
    read = Manifest.from_bytes(stored_manifest.to_bytes(), "x")
    by_id = [{node.id: node for node in side.nodes} for side in (read, stored_manifest)]
    assert (read, by_id[0]) == (stored_manifest, by_id[1])
    assert len(nodes) == sum(layer.file_count > 0 for layers in manifest.tables.values() for layer in layers)
    for node, layer in zip(
        nodes,
        (stored_layer for layers in stored_manifest.tables.values() for stored_layer in layers if stored_layer.node),
        strict=True,
    ):
        read_node = IndexNode.from_bytes(node.to_bytes(), "x")
        assert (read_node.id, read_node.records[0].files) == (layer.node and layer.node.id, layer.files)


@given(
    st.builds(
        Entry,
        st.integers(0),
        st.text(),
        st.text(),
        st.sampled_from(Kind),
        st.none() | st.text(),
        st.none() | st.integers(),
        st.dictionaries(st.text(), st.tuples(st.none() | st.text(), st.none() | st.text())),
        st.dictionaries(st.text(), st.text()),
        st.dictionaries(st.text(), st.integers()),
        st.integers(),
        st.text(),
        st.none() | st.lists(st.integers()),
    )
)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert Entry.from_bytes(entry.to_bytes(), "x") == entry


@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    stored_bytes = SAMPLE.to_bytes()
    position = data.draw(st.integers(0, len(stored_bytes) - 1))
    content = bytearray(stored_bytes)
    content[position] ^= data.draw(st.integers(1, 255))
    try:
        assert Manifest.from_bytes(bytes(content), "the/object.json") == SAMPLE  # a byte of white space
    except RestoreError as error:
        assert "the/object.json" in str(error)


@given(st.integers(0, len(SAMPLE.to_bytes()) - 2))
def test_a_cut_off_object_is_broken(length: int) -> None:
    with pytest.raises(BrokenObjectError, match=r"the/object\.json is broken"):
        Manifest.from_bytes(SAMPLE.to_bytes()[:length], "the/object.json")


def test_another_spelling_of_the_same_content_is_read() -> None:
    envelope = json.loads(SAMPLE.to_bytes())
    assert Manifest.from_bytes(json.dumps(envelope, indent=2).encode(), "x") == SAMPLE
    envelope["content"]["epoch"] += 1
    with pytest.raises(BrokenObjectError, match="checksum"):
        Manifest.from_bytes(json.dumps(envelope, indent=2).encode(), "x")


def test_an_object_of_another_kind_or_a_newer_format() -> None:
    with pytest.raises(BrokenObjectError, match="it is a entry, not a manifest"):
        Manifest.from_bytes(ENTRY.to_bytes(), "x")
    newer = json.loads(SAMPLE.to_bytes()) | {"format": 7}
    with pytest.raises(NewerFormatError, match="x has format 7"):
        Manifest.from_bytes(json.dumps(newer).encode(), "x")


def test_a_field_of_a_wrong_type_is_named() -> None:
    content = SAMPLE.to_json()
    for change, message in [
        ({"epoch": "3"}, r"content\.epoch: Expected `int`, got `str`"),
        ({"tables": {"t": [{"files": []}]}}, r"content\.tables\[\.\.\.\]\[0\]: Object missing required field `rows`"),
        (
            {"logs": {"panes": {"tail": [{"epoch": 0, "files": [{**FILE, "rows": "1"}]}], "levels": []}}},
            r"content\.logs\[\.\.\.\]\.tail\[0\]\.files\[0\]\.rows: Expected `int`, got `str`",
        ),
        (
            {"tables": {"t": [{"files": [FILE], "rows": 2, "first_epoch": 0, "last_epoch": 0, "expires": None}]}},
            r"content\.tables\[\.\.\.\]\[0\]: a layer of 2 rows, and of 1 in its files",
        ),
        ({"parent": 1}, r"content\.parent: Expected `str \| null`, got `int`"),
        ({"counts": {"x": True}}, r"content\.counts\[\.\.\.\]: Expected `int`, got `bool`"),
    ]:
        with pytest.raises(BrokenObjectError, match=message):
            Manifest.from_bytes(encode_object("manifest", content | change), "x")


@given(manifests())
def test_a_packed_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    content = encode_object("manifest", manifest.to_json(), manifest.format, packed_from=0)
    assert json.loads(content)["format"] == 5
    assert Manifest.from_bytes(content, "x") == manifest


def test_a_manifest_is_packed_once_it_is_long() -> None:
    assert json.loads(SAMPLE.to_bytes())["format"] == 1
    stored_bytes = LONG.to_bytes()
    assert len(stored_bytes) * 3 < len(encode_object("manifest", LONG.to_json()))
    assert Manifest.from_bytes(stored_bytes, "x") == LONG
    with (
        set_sizes(newest_format=4),
        pytest.raises(NewerFormatError, match="x has format 5, this Headrace reads up to 4: upgrade it"),
    ):
        Manifest.from_bytes(stored_bytes, "x")


@given(st.data())
def test_any_changed_byte_of_a_packed_manifest_is_noticed(data: st.DataObject) -> None:
    content = bytearray(LONG.to_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert Manifest.from_bytes(bytes(content), "the/object.json") == LONG  # a byte of white space
    except RestoreError as error:
        assert "the/object.json" in str(error)


def test_what_is_wrong_with_a_packed_manifest_is_said() -> None:
    envelope = json.loads(LONG.to_bytes())
    half = zlib.compress(b"x" * 100)[:-1]
    for content, problem in [
        (7, "object.content is of type int, not a string"),
        ("not base64", "is broken"),
        (base64.b64encode(half).decode(), "it cannot be unpacked"),
        (base64.b64encode(zlib.compress(b"{}")).decode(), "its checksum does not match its content"),
    ]:
        with pytest.raises(BrokenObjectError, match=problem):
            Manifest.from_bytes(json.dumps({**envelope, "content": content}).encode(), "x")


def test_what_is_stored_today_is_readable_for_ever() -> None:
    """The bytes of format 1, written down: this test changes only when a new format is added beside it."""
    stored_bytes = (
        b'{"format":1,"kind":"manifest","sha256":"%s","content":{"branch":"main","code":{},"counts":{"rows":7},'
        b'"created_at":"2026-01-01T00:00:00Z","epoch":3,"fingerprint":"f","generation":2,"logs":{},"parent":"s0",'
        b'"pipeline":"p","progress":{"watermark":null},"requests":{},"schema":{},"snapshot_id":"s1","tables":{},'
        b'"timings":{}}}\n'
    ) % b"4ca6038de167f3db40b29d13fafd11e2bdcc70d9bdc34c9c2a9232402dc53e80"
    assert stored_bytes == SAMPLE.to_bytes()
    assert Manifest.from_bytes(stored_bytes, "x") == SAMPLE


FIRST_CONVERSIONS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import msgspec

from headrace_snapshots.format.codec import convert_value

def new_kind(number):
    part = msgspec.defstruct(f"Part{number}", [(f"field{k}", int | None, None) for k in range(30)])
    own = [("parts", tuple[part, ...], ()), ("by_name", dict[str, part], {})]
    middle = [msgspec.defstruct(f"Middle{number}Of{k}", own) for k in range(6)]
    return msgspec.defstruct(f"Kind{number}", [(f"field{k}", tuple[kind, ...], ()) for k, kind in enumerate(middle)])

def convert(kind, barrier):
    barrier.wait()
    return convert_value({"field0": [{"parts": [{"field0": 1}]}]}, kind).field0[0].parts[0].field0

sys.setswitchinterval(1e-6)
threads = 16
with ThreadPoolExecutor(threads) as pool:
    for number in range(20):
        assert set(pool.map(convert, [new_kind(number)] * threads, [Barrier(threads)] * threads)) == {1}
"""


def test_records_of_a_kind_are_read_first_by_several_threads_at_once() -> None:
    result = subprocess.run([sys.executable, "-c", FIRST_CONVERSIONS], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_one_module_calls_what_is_not_safe_in_threads() -> None:
    repository = Path(__file__).parents[2]
    files = [file for folder in ("jobs", "snapshots", "plugins") for file in (repository / folder).rglob("*.py")]
    assert [file.stem for file in files if "msgspec.convert(" in file.read_text()] == ["codec"]
