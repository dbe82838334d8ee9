"""What was released by name is there: names, arguments, methods, commands, options, exit codes, variables."""

import pytest

from scripts.public_api import GOLDEN, find_gone, public_api, read_released


@pytest.mark.slow
def test_nothing_that_was_released_is_gone() -> None:
    assert find_gone() == []


@pytest.mark.parametrize(
    "name",
    [
        "hr.FixedWindows",
        "hr.FixedWindows(offset=)",
        "hr.json(max_files=)",
        "hr.retracting(keep_last=)",
        "hr.Expr.sum",
        "hr.FileSource.event_time(bound=)",
        "hr.types.PipelineHandle.run(full_sweep=)",
        "hr.types.PipelineHandle.current",
        "hr.types.RunResult.epochs",
        "hr.testing.run(pipeline=)",
        "hr.DataType.DECIMAL",
        "headrace run PIPELINE",
        "headrace run --executor",
        "column current.window_start",
        "exit code 30",
        "HEADRACE_ROOT",
    ],
)
def test_it_is_listed(name: str) -> None:
    assert read_released()[name] in ("0.1.0", "0.1.2", "0.2.0", "0.3.0")


def test_the_list_is_in_order() -> None:
    names = [line.rpartition(",")[0] for line in GOLDEN.read_text(encoding="utf-8").splitlines()[1:]]
    assert names == sorted({*names})


def test_a_name_that_goes_is_named() -> None:
    left = [name for name in public_api() if not name.startswith(("hr.FixedWindows", "hr.testing."))]
    lines = find_gone(left)
    assert "hr.FixedWindows(offset=) was released in 0.1.0 and is gone; docs/versions.md says how a name goes" in lines
    assert {line.partition(" ")[0].split("(")[0] for line in lines if not line.startswith("hr.testing")} == {
        "hr.FixedWindows"
    }
    assert {*public_api()} > {"hr.FixedWindows", "hr.testing.run"}
