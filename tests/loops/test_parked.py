"""An output with a loop that fails while something is in flight: it is parked with it, and catches up as if it had not
failed.
"""

from pathlib import Path

import headrace as hr
from headrace import col
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from tests.loops.graphs import Edge
from tests.loops.pipelines import LOOPS, links
from tests.loops.test_crash import land
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.fragile import Fragile
from tests.process.outputs import catalog_of, line
from tests.process.random_runs import panes

FILES_BEFORE, FILES_IN_ALL, FAILS_AT = 6, 9, 3
WAY = [Edge(f"v{n:02}", f"v{n + 1:02}", 1, 0) for n in range(14)]


def ways(mended_file: Path) -> hr.Pipeline:
    """How long ways are, in an output that cannot add up a way of length ``FAILS_AT`` until there is the file
    ``mended_file``.
    """
    total = hr.Aggregation(
        what={"total": col("value").combine(Fragile(str(mended_file), least=FAILS_AT, most=FAILS_AT))},
        where=hr.GlobalWindows(),
        when=hr.Repeatedly(hr.AfterCount(1)),
    )
    common_parts = {"where": hr.GlobalWindows(), "when": hr.Repeatedly(hr.AfterCount(1)), "how": hr.retracting()}
    return hr.Pipeline(
        "ways",
        links("100s"),
        outputs={
            "far": hr.Output(key=["a", "b"], loop=LOOPS["paths"].with_rounds(1), then=[total], **common_parts),
            "edges": hr.Output(key="a", what={"edges": hr.count()}, **common_parts),
            "lengths": hr.Output(of="far", what={"least": col("total").min()}, **common_parts),
        },
        executor="local",
    )


def land_file(root: Path, number: int) -> None:
    """The whole way in file 0, then edges that come in while it is walked."""
    land(root, number, WAY if number == 0 else [Edge("v02", f"w{number:02}", 1, 0)])


@on_both
def test_a_loop_that_is_parked_catches_up_with_what_was_in_flight(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    mended_path, root, whole = tmp_path / "mended", tmp_path / "root", tmp_path / "whole"
    definition = ways(mended_path)
    for folder in (root, whole):
        folder.mkdir()
    mended_path.touch()
    for number in range(FILES_IN_ALL):
        land_file(whole, number)
    LOCAL.run(definition, whole.as_uri(), publish=False)
    mended_path.unlink()

    for number in range(FILES_BEFORE):
        land_file(root, number)
    broken_result = executor.run(definition, root.as_uri(), publish=False)
    head = line(catalog_of(root, "ways"))[-1]
    assert [*broken_result.epochs] == [*range(FILES_BEFORE)]  # none only to deliver what nobody takes
    assert head.tables["far/inflight"]
    assert head.progress["outputs"]["far"]["epoch"] == FAILS_AT - 1
    mended_path.touch()
    for number in range(FILES_BEFORE, FILES_IN_ALL):
        land_file(root, number)
    executor.run(definition, root.as_uri(), publish=False)

    ends = [line(catalog_of(folder, "ways"))[-1] for folder in (root, whole)]
    assert [end.epoch for end in ends] == [ends[1].epoch] * 2
    assert not ends[0].tables.get("far/inflight")
    for output, own_pipeline in definition.by_output.items():
        found_panes, expected = (
            panes(own_pipeline, folder, "main", ends[1].epoch + 1, output) for folder in (root, whole)
        )
        assert found_panes == expected, output
    assert sum(map(len, expected)) > FILES_IN_ALL
    check_catalog(open_store(root.as_uri()), "ways")
