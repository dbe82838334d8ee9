"""The digest of what a task passed on: equal values have one, however they came to be, and all others another."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from headrace.distribute.tasks.exchange import TornExchangeError
from headrace.distribute.tasks.task_results import (
    BundleOutput,
    Failure,
    IdsOutput,
    MergedLayers,
    ShareOutput,
    StageOutput,
    StoredLayer,
    TaskOutput,
    TaskResult,
    canonical_digest,
)
from headrace.distribute.watermark_inputs import InputObservations
from headrace.kernel.delta import Accounting, Disposition
from headrace.kernel.step import Counts
from headrace.model.event_time import SplitFacts
from headrace.model.time import Instant
from headrace.sources.progress import RecordsAhead
from headrace_snapshots.format.files import DataFile

SHA = "5f" * 32


def file(name: str = "a", sha: str = SHA) -> DataFile:
    return DataFile(name, 3, 100, sha, (0, 7))


def share() -> ShareOutput:
    observations = InputObservations(
        facts={"clicks": {"web": SplitFacts(Instant(5), {1: 2, 3: 4}), "app": SplitFacts(None)}},
        ahead=(RecordsAhead("clicks", 1, "f", None, Instant(9)),),
        rejected={"clicks": 1},
        sample={"clicks": ("f:1: no number",)},
        newest=Instant(7),
        lags={0: 1, 10: 2},
    )
    became = BundleOutput(Accounting({Disposition.ACCEPTED: 3, Disposition.LATE: 1}, late=1), late=(file(),))
    return ShareOutput(observations, (became,), rejected=(file("b"),))


OUTPUTS: dict[str, TaskOutput] = {
    "share": share(),
    "ids": IdsOutput((BundleOutput(Accounting({Disposition.DUPLICATE: 2})),), StoredLayer((file(),), Instant(5))),
    "stage": StageOutput(Counts(on_time=1), panes=(file(),), elements=(file("b"),)),
    "merged": MergedLayers({"state": (file(), file("b")), "ids": ()}),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_equal_values_have_one_digest_whichever_objects_they_share(kind: str) -> None:
    """A sum of two files that name one string, and of two that name equal ones: what a pickle tells apart."""
    output = OUTPUTS[kind]
    unpickled_copy = pickle.loads(pickle.dumps(output))  # its strings are others than those of the constants
    own = TaskResult(output, received_digest=b"above").content
    assert TaskResult(unpickled_copy, received_digest=b"above").content == own
    assert TaskResult(_copy_unshared(output), received_digest=b"above").content == own


def _copy_unshared(value: Any) -> Any:
    """A copy of a value of which no two parts are one object."""
    if isinstance(value, DataFile):
        return value.replace(sha256="".join(list(value.sha256)))
    if isinstance(value, msgspec.Struct):
        unshared_by_name = {name: _copy_unshared(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **unshared_by_name)
    if isinstance(value, tuple):
        return tuple(_copy_unshared(each) for each in value)
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{name: _copy_unshared(getattr(value, name)) for name in value.__dataclass_fields__})
    if isinstance(value, dict):
        return {key: _copy_unshared(each) for key, each in reversed(value.items())}
    return value


@pytest.mark.slow
def test_every_process_gives_the_same_digest() -> None:
    """Whatever its seed of hashes: sets and mappings come in other orders."""
    program = (
        "from headrace.distribute.tasks.task_results import canonical_digest;"
        "print(canonical_digest([frozenset('abcdefgh'), {'x': 1.5, 'y': None}]).hex())"
    )

    def ran(seed: str) -> str:
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        ended_result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        return ended_result.stdout.decode().strip()

    assert len({ran("1"), ran("2"), canonical_digest([frozenset("abcdefgh"), {"y": None, "x": 1.5}]).hex()}) == 1


def _different() -> Iterator[Any]:
    yield from OUTPUTS.values()
    yield from (None, False, True, 0, 1, -1, 0.0, -0.0, 1.0, float("nan"), "", "1", b"", b"1", (), ((),), ("",))
    yield from ({}, {"a": 1}, {"a": "1"}, {1: "a"}, {"a": 1, "b": 2}, frozenset(), frozenset({1}), (1,), (1, 1))
    yield from (
        ("ab", "c"),
        ("a", "bc"),
        (("a", "b"), "c"),
        ("a", ("b", "c")),
        Disposition.LATE,
        Disposition.LATE.value,
        Disposition,
    )
    (became,) = share().chains
    yield replace(share(), chains=(replace(became, late=(file(sha="00" * 32),)),))
    yield replace(share(), chains=(replace(became, late=(file(), file())),))


def test_different_values_have_different_digests() -> None:
    values = list(_different())
    assert len({canonical_digest(value) for value in values}) == len(values)


def test_names_of_files_and_the_types_of_numbers_that_are_equal_do_not_count() -> None:
    assert canonical_digest(file("a")) == canonical_digest(file("b"))
    assert canonical_digest([np.int64(5), np.float64(0.5), np.bool_(True)]) == canonical_digest([5, 0.5, True])


def test_what_has_no_encoding_is_an_error_and_never_an_address() -> None:
    with pytest.raises(TypeError, match="object has no canonical encoding"):
        canonical_digest([object()])


def test_an_error_counts_by_its_kind_and_its_message() -> None:
    def content(error: Exception) -> bytes:
        return TaskResult(None, error=Failure.from_error(error)).content  # type: ignore[arg-type]

    one, other = TornExchangeError("task 1 is silent"), TornExchangeError("task 2 is silent")
    assert content(one) == content(TornExchangeError("task 1 is silent")) != content(other)
