"""Hypothesis strategies for what snapshots hold."""

from hypothesis import strategies as st

from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, InputFile, Layer, append
from headrace_snapshots.format.manifest import Manifest, Patch, Skip

names = st.text(min_size=1, max_size=12)
counts = st.integers(0, 10**12)
checksums = st.text("0123456789abcdef", min_size=64, max_size=64)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)

data_files: st.SearchStrategy[DataFile] = st.builds(DataFile, names, counts, counts, checksums)
input_files: st.SearchStrategy[InputFile] = st.builds(InputFile, names, counts, names, names, st.none() | names)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """A layer whose row count is that of its files."""
    files = tuple(draw(st.lists(data_files, max_size=3)))
    first = draw(st.integers(0, 1000))
    last = first + draw(st.integers(0, 100))
    return Layer.from_files(files, first, last, draw(st.none() | st.integers()))


@st.composite
def records(draw: st.DrawFn, max_files: int = 90) -> list[FileRecord]:
    """Records of a log in order: some epochs missing, some with no file, some with more files than a leaf takes."""
    sizes = draw(st.lists(st.integers(0, 3) | st.integers(0, max_files), max_size=40))
    file = draw(data_files | input_files)
    epoch, result = -1, []
    for size in sizes:
        epoch += draw(st.integers(1, 3))
        result.append(FileRecord(epoch, (file,) * size))
    return result


def log_of(entries: list[FileRecord]) -> FileLog:
    """The log of those records; the nodes are thrown away."""
    log = FileLog.empty()
    for record in entries:
        log, _ = append(log, record)
    return log


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Any manifest that can be stored."""
    return Manifest(
        snapshot_id=draw(names),
        pipeline=draw(names),
        fingerprint=draw(names),
        branch=draw(names),
        epoch=draw(counts),
        parent=draw(st.none() | names),
        generation=draw(counts),
        created_at=draw(names),
        progress=draw(st.dictionaries(names, json_values, max_size=3)),
        schema=draw(st.dictionaries(names, json_values, max_size=1)),
        tables=draw(st.dictionaries(names, st.lists(layers(), max_size=2).map(tuple), max_size=2)),
        logs=draw(st.dictionaries(names, records(3).map(log_of), max_size=2)),
        counts=draw(st.dictionaries(names, st.integers(), max_size=2)),
        timings=draw(st.dictionaries(names, st.floats(0, 1e6), max_size=2)),
        requests=draw(st.dictionaries(names, counts, max_size=2)),
        code=draw(st.dictionaries(names, names, max_size=2)),
        definition=draw(st.dictionaries(names, names, max_size=2)),
        patch=draw(st.none() | st.builds(Patch, counts, names, names)),
        skips=draw(st.lists(st.builds(Skip, names, counts), max_size=3).map(tuple)),
    )
