"""What a manifest says of its own epoch is never that of the epoch before: whoever writes one has to say it."""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace_snapshots
from headrace_snapshots.format.files import FileLog, UnfinishedMerge
from headrace_snapshots.format.manifest import OF_EPOCH, Continuing, EpochFields, Manifest, Patch

PRODUCT = tuple(Path(package.__path__[0]) for package in (headrace, headrace_snapshots))
GIVEN_BY_PARENT = {"epoch", "parent"}
GIVEN_AT_COMMIT = {"skips"}


def fields_of(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def of_epoch(number: int) -> EpochFields:
    """The fields of an epoch, each of which says its number."""
    return EpochFields(
        snapshot_id=f"s{number}",
        branch=f"branch{number}",
        generation=number,
        created_at=f"at {number}",
        progress={name: f"{name} of {number}" for name in OF_EPOCH},
        counts={"rows": number},
        timings={"seconds": number},
        requests={"get": number},
    )


CONTINUING = Continuing(
    pipeline="p",
    fingerprint="f",
    definition={"stages": []},
    schema={"columns": []},
    code={"own": "digest"},
    progress={"watermark": "now", "signals_of": "r"},
    tables={"current": ()},
    merges={"current": (UnfinishedMerge(("a", "b"), 0, 1, 2),)},
    logs={"panes": FileLog.empty()},
    patch=Patch(1, "b", "s"),
)
FIRST = Manifest.next_of(None, continuing=CONTINUING, epoch=of_epoch(0))


def test_each_field_of_a_manifest_is_of_its_epoch_or_goes_on() -> None:
    both = fields_of(EpochFields) & fields_of(Continuing)
    assert both == {"progress"}
    all_fields = fields_of(EpochFields) | fields_of(Continuing) | GIVEN_BY_PARENT | GIVEN_AT_COMMIT
    assert {*Manifest.__struct_fields__} == all_fields
    for field in (*dataclasses.fields(EpochFields), *dataclasses.fields(Continuing)):
        assert field.default is field.default_factory is dataclasses.MISSING, f"{field.name} can be forgotten"


def test_the_next_manifest_has_what_goes_on_and_nothing_else_of_the_one_before() -> None:
    second = Manifest.next_of(FIRST, continuing=FIRST.continuing, epoch=of_epoch(1))
    assert (second.epoch, second.parent) == (1, "s0")
    assert second.continuing == FIRST.continuing == CONTINUING
    for name in (fields_of(EpochFields) - {"progress"}) | GIVEN_BY_PARENT:
        assert getattr(second, name) != getattr(FIRST, name)
    assert {name: second.progress[name] for name in OF_EPOCH} == {name: f"{name} of 1" for name in OF_EPOCH}
    assert Manifest.from_bytes(second.to_bytes(), "second") == second


@pytest.mark.parametrize("name", sorted(OF_EPOCH))
def test_progress_of_an_epoch_does_not_go_on(name: str) -> None:
    continuing = dataclasses.replace(CONTINUING, progress={**CONTINUING.progress, name: "of 0"})
    with pytest.raises(ValueError, match=rf"in the wrong place: {name}$"):
        Manifest.next_of(FIRST, continuing=continuing, epoch=of_epoch(1))
    unsaid = dataclasses.replace(of_epoch(1), progress={})
    assert name not in Manifest.next_of(FIRST, continuing=FIRST.continuing, epoch=unsaid).progress


def test_what_goes_on_is_not_said_of_an_epoch() -> None:
    with pytest.raises(ValueError, match=r"in the wrong place: watermark$"):
        epoch = dataclasses.replace(of_epoch(1), progress={"watermark": "later"})
        Manifest.next_of(FIRST, continuing=FIRST.continuing, epoch=epoch)


def test_what_some_output_sees_of_a_manifest_is_the_same_epoch() -> None:
    seen_manifest = FIRST.seen_as(tables={})
    assert (seen_manifest.tables, seen_manifest.snapshot_id, seen_manifest.epoch) == ({}, "s0", 0)
    assert FIRST.with_skips(()) == FIRST


def test_product_code_makes_manifests_in_one_way() -> None:
    pairs = [(path.name, call) for path, call in calls() if callee(call) in ("Manifest", "EpochFields")]
    writers = {name for name, call in pairs if callee(call) == "EpochFields"}
    assert writers == {"commits.py", "progress.py"}
    assert {name for name, call in pairs if callee(call) == "Manifest"} <= {"strategies.py"}, "Manifest.next_of"
    for name, call in pairs:
        said_args = {keyword.arg for keyword in call.keywords}
        assert callee(call) == "Manifest" or said_args == fields_of(EpochFields), (
            f"{name} forgets what it says of its epoch"
        )


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in (path for folder in PRODUCT for path in folder.rglob("*.py")):
        text = path.read_text()
        if "Manifest(" in text or "EpochFields(" in text:
            yield from ((path, node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def callee(call: ast.Call) -> Any:
    """The name that is called, whether its module stands before it or not."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", None)
