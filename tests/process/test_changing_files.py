"""Files whose content changes while a run lists and reads them: what is committed is of one content of each file, and
that is the one that the manifest records. Files change at each moment with ``make exhaustive``, else at each fourth, so
that the four contents of a local file take all of them together.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headrace import DataType, Pipeline, SparkFunction
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.restore import InputGoneError
from headrace.sources.file_planning import ChangedFileError, ChangingFileError, VanishedFileError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.store import LocalStore, ObjectInfo, ObjectStore, open_store
from tests.building import change_pipeline
from tests.faults.scenarios import PIPELINES, land_file, results
from tests.process.executors import ExecutorUnderTest, on_spark
from tests.snapshots.conftest import root

__all__ = ["root"]  # a fixture
pytestmark = pytest.mark.slow
FILES = 2
STEP = 1 if os.environ.get("HEADRACE_CORRUPTIONS") == "all" else 4
"""From the number of one moment to that of the next at which a file changes."""
CHANGING = "landing/clicks/001.jsonl"
PLAIN, DEDUPLICATING_PIPELINE = PIPELINES["one_stage"], PIPELINES["deduplicating"]
OTHERS: Mapping[str, Callable[[bytes], bytes]] = {
    "as long": lambda data: data.replace(b'"user": "u1"', b'"user": "u2"').replace(b"2026-01-01T0", b"2026-01-02T0"),
    "empty": lambda data: b"",
    "cut off": lambda data: data[: len(data) // 2],
    "appended to": lambda data: data + data.replace(b'"id": "', b'"id": "more-'),
}
"""Another content of a file."""


@cache
def first_content(number: int) -> bytes:
    """What the file of that number holds at first."""
    land_file(folder := Path(os.environ["HEADRACE_CACHE"]) / uuid4().hex, "clicks", number)
    return (folder / "landing" / "clicks" / f"{number:03}.jsonl").read_bytes()


def land(store: ObjectStore) -> None:
    for number in range(FILES):
        store.write(f"landing/clicks/{number:03}.jsonl", first_content(number))


def put(store: ObjectStore, content: bytes) -> None:
    """Another content for the file: where that can be, in place and with the time that it had before."""
    if isinstance(store, LocalStore):
        file = store.root / CHANGING
        times = file.stat()
        with file.open("r+b") as stream:
            stream.truncate(len(content))
            stream.write(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    else:
        store.write(CHANGING, content)


def undisturbed_results(pipeline: Pipeline, content: bytes) -> dict[str, list[str]]:
    """What a run gives that finds ``content`` in the file."""
    store = open_store(f"memory://{uuid4().hex}")
    land(store)
    store.write(CHANGING, content)
    process(pipeline, store.uri, RunOptions("undisturbed", executor="local", publish=True))
    return results(pipeline, store.uri)


@dataclass
class Moments:
    """The moments at which the store is asked for the file, or a file is opened or has been read; ``then`` happens at
    each with its number.
    """

    then: Callable[[int], object]
    seen: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def moment(self) -> None:
        with self.lock:
            self.seen += 1
            self.then(self.seen - 1)

    def watch(self, store: ObjectStore, patch: pytest.MonkeyPatch) -> None:
        """Watch stores like ``store``, and what they do to local files."""
        kind: Any = type(store)
        for name in ("read", "read_same", "digested", "stat"):
            patch.setattr(kind, name, self._watch_method(name, getattr(kind, name)))
        listing = kind.list

        def watch_list(this: Any, prefix: str, start_after: str = "") -> Iterator[Any]:
            is_landing = prefix.startswith("landing")
            if is_landing:
                self.moment()
            listed_infos = [*listing(this, prefix, start_after)]
            if is_landing:
                self.moment()
            yield from listed_infos

        patch.setattr(kind, "list", watch_list)
        status = os.fstat

        def watch_status(descriptor: int) -> os.stat_result:
            if str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith(CHANGING):
                self.moment()  # opened, or read
            return status(descriptor)

        patch.setattr(os, "fstat", watch_status)

    def _watch_method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def ask(this: Any, what: Any) -> Any:
            path = what if isinstance(what, str) else what.path
            if path.startswith("landing"):
                self.asked[name] += 1
            if path != CHANGING:
                return method(this, what)
            self.moment()
            answer = method(this, what)
            self.moment()
            return answer

        return ask


def run(pipeline: Pipeline, root: str, **options: Any) -> None:
    process(pipeline, root, RunOptions(uuid4().hex, executor="local", publish=True, **options))


def digest(store: ObjectStore, content: bytes) -> str | None:
    """What a store like ``store`` says of ``content``, where it says more than the ETag."""
    store.write("elsewhere", content)
    info = store.digested("elsewhere")
    return None if info is None else info.digest


def recorded_file(pipeline: Pipeline, store: ObjectStore) -> InputFile:
    """The changing file as the newest manifest has it."""
    catalog = Catalog(store, pipeline.name)
    manifest = catalog.manifest(catalog.head().refs["main"])
    files = [file for record in catalog.file_records(manifest.logs["inputs"]) for file in record.files]
    (changed_file,) = [file for file in files if isinstance(file, InputFile) and file.path == CHANGING]
    return changed_file


@pytest.mark.parametrize(
    ("root", "other"),
    [
        *(("local", other) for other in OTHERS),
        ("memory", "as long"),
        pytest.param("s3", "as long", marks=pytest.mark.s3),
        pytest.param("s3", "cut off", marks=pytest.mark.s3),
    ],
    indirect=["root"],
)
def test_what_is_committed_is_what_the_manifest_records_whenever_a_file_changes(root: str, other: str) -> None:
    pipeline = DEDUPLICATING_PIPELINE  # reads files again, for records that it drops
    content_before, content_after = first_content(1), OTHERS[other](first_content(1))
    expected = {content: undisturbed_results(pipeline, content) for content in (content_before, content_after)}
    assert expected[content_before] != expected[content_after]
    number, step_seen, committed_steps = [*OTHERS].index(other) % STEP, STEP, set()
    while number < step_seen:
        store = open_store(f"{root}/{number}")
        land(store)

        def swap(moment: int, store: ObjectStore = store, number: int = number) -> None:
            if moment == number:
                put(store, content_after)

        moments = Moments(swap)
        with pytest.MonkeyPatch.context() as patch:
            moments.watch(store, patch)
            run(pipeline, store.uri)
        committed_results = results(pipeline, store.uri)
        (content,) = [content for content, rows in expected.items() if rows == committed_results]
        committed_steps.add(content)
        of_then = recorded_file(pipeline, store)
        assert (of_then.size, of_then.digest) == (len(content), digest(store, content))
        refs = Catalog(store, pipeline.name).head().refs
        stored_content = store.read(CHANGING)
        if stored_content != content:  # it changed when it had been read
            if of_then.size != store.stat(CHANGING).size:
                with pytest.raises(ChangedFileError):
                    run(pipeline, store.uri)
            store.write(CHANGING, content)
        run(pipeline, store.uri)
        assert Catalog(store, pipeline.name).head().refs == refs, "there is nothing new"
        number, step_seen = number + STEP, moments.seen
    assert step_seen > 5
    assert committed_steps == {content_before, content_after}


def test_a_file_that_changes_each_time_ends_the_run_before_the_commit(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(root)
    land(store)

    def another(moment: int) -> None:
        put(store, first_content(1).replace(b'"user": "u1"', f'"user": "u{moment + 2}"'.encode()))

    with monkeypatch.context() as patch:
        Moments(another).watch(store, patch)
        with pytest.raises(ChangingFileError, match=r"clicks/001\.jsonl"):
            run(PLAIN, root)
    assert Catalog(store, PLAIN.name).manifest(Catalog(store, PLAIN.name).head().refs["main"]).epoch == 0
    run(PLAIN, root)
    assert results(PLAIN, root) == undisturbed_results(PLAIN, store.read(CHANGING))


def test_a_file_that_goes_when_it_was_taken_in_ends_the_run_before_the_commit(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(root)
    land(store)
    data = first_content(1)

    def remove(_: int) -> None:
        if moments.asked["read_same"] == FILES:  # it is the last one
            store.delete(CHANGING)

    moments = Moments(remove)
    with monkeypatch.context() as patch:
        moments.watch(store, patch)
        with pytest.raises(VanishedFileError, match=r"clicks/001\.jsonl"):
            run(PLAIN, root)
    store.write(CHANGING, data)
    run(PLAIN, root)
    assert results(PLAIN, root) == undisturbed_results(PLAIN, data)


def test_a_replay_reads_what_was_recorded_or_ends(root: str) -> None:
    content_before, content_after = first_content(1), OTHERS["as long"](first_content(1))
    store = open_store(root)
    land(store)
    run(PLAIN, root)
    expected = results(PLAIN, root)
    number, number_seen, number_refused = 0, 1, 0
    while number < number_seen:

        def swap(moment: int, number: int = number) -> None:
            if moment == number:
                put(store, content_after)

        moments, options_again = Moments(swap), partial(RunOptions, branch=f"again-{number}", mode=Mode.REPLAY)
        with pytest.MonkeyPatch.context() as patch:
            moments.watch(store, patch)
            try:
                process(PLAIN, root, options_again("swapped", executor="local"))
            except (ChangedFileError, InputGoneError) as error:
                assert CHANGING in str(error)
                number_refused += 1
        number, number_seen = number + STEP, max(number_seen, moments.seen)
        put(store, content_before)
        process(PLAIN, root, options_again("again", executor="local"))
        catalog = Catalog(store, PLAIN.name)
        found_manifests = [catalog.manifest(catalog.head().refs[name]) for name in ("main", f"again-{number - STEP}")]
        assert found_manifests[0].counts == found_manifests[1].counts
    assert number_refused
    assert results(PLAIN, root) == expected


def test_a_file_is_asked_for_once_but_for_what_a_local_one_needs(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(root)
    land(store)
    moments = Moments(lambda moment: None)
    moments.watch(store, monkeypatch)
    requests_before = store.requests.snapshot()
    run(PLAIN, root)
    assert {name: count for name, count in moments.asked.items() if name != "digested"} == {"read_same": FILES}
    assert moments.asked["digested"] <= FILES
    assert store.requests.since(requests_before)["stat"] == 0


_FUNCTION = SparkFunction(
    "tests.spark.spark_transforms:double_rows", {**PLAIN.source.schema, "times": DataType.STRING}, deterministic=True
)
DOUBLING_PIPELINE = change_pipeline(PLAIN, name="doubled", source=replace(PLAIN.source, transform=_FUNCTION))


@on_spark
@pytest.mark.parametrize("pipeline", [DEDUPLICATING_PIPELINE, DOUBLING_PIPELINE], ids=lambda pipeline: pipeline.name)
def test_tasks_in_other_processes_read_what_was_taken_in(
    executor: ExecutorUnderTest, pipeline: Pipeline, tmp_path: Path
) -> None:
    store, content_after = open_store(tmp_path.as_uri()), OTHERS["as long"](first_content(1))
    land(store)
    requested_paths: list[str] = []
    take_in = LocalStore.digested

    def take_digest(this: LocalStore, path: str) -> ObjectInfo:
        taken_in = take_in(this, path)
        if path == CHANGING and CHANGING not in requested_paths:
            put(store, content_after)
        requested_paths.append(path)
        return taken_in

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "digested", take_digest)
        executor.process(pipeline, store.uri, RunOptions("swapped", publish=True))
    assert requested_paths.count(CHANGING) == 2
    rows = results(pipeline, store.uri)
    other = open_store((tmp_path / "other").as_uri())
    land(other)
    put(other, content_after)
    executor.process(pipeline, other.uri, RunOptions("undisturbed", publish=True))
    assert rows == results(pipeline, other.uri)
