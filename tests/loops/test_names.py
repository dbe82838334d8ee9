"""A pipeline with a loop whose output gets a name while something is in flight: windows wait for it all the same."""

from pathlib import Path
from typing import Any

import headrace as hr
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from tests.loops.graphs import Edge
from tests.loops.pipelines import LOOPS, links
from tests.loops.test_crash import land
from tests.process.executors import ExecutorUnderTest
from tests.process.outputs import catalog_of, line
from tests.process.random_runs import panes

PARTS: dict[str, Any] = {
    "key": ["a", "b"],
    "loop": LOOPS["paths"].with_rounds(1),
    "where": hr.FixedWindows("10s"),
    "when": hr.on_update(),
    "how": hr.retracting("0s"),
}
PLAIN_WAYS = hr.Pipeline("ways", links(), executor="local", **PARTS)
NAMED_WAYS = hr.Pipeline("ways", links(), executor="local", outputs={"far": hr.Output(formerly="", **PARTS)})
WAY = [Edge(f"v{n:02}", f"v{n + 1:02}", 1, 1) for n in range(8)]


def test_a_loop_gets_a_name_while_something_is_in_flight(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    named_root, whole = tmp_path / "named", tmp_path / "whole"
    for root in (named_root, whole):
        root.mkdir()
        land(root, 0, [*WAY, Edge("x", "y", 1, 60)])  # the watermark is far ahead of what is in flight
        executor.run(PLAIN_WAYS, root.as_uri(), max_epochs=3, publish=False)
        assert line(catalog_of(root, "ways"))[-1].tables["inflight"]
    executor.run(PLAIN_WAYS, whole.as_uri(), publish=False)
    executor.run(NAMED_WAYS, named_root.as_uri(), publish=False)
    epochs = len(line(catalog_of(whole, "ways")))
    assert epochs == len(line(catalog_of(named_root, "ways"))) > 8
    (own_pipeline,) = NAMED_WAYS.by_output.values()
    found_panes, expected = (
        panes(own_pipeline, named_root, "main", epochs, "far"),
        panes(PLAIN_WAYS, whole, "main", epochs),
    )
    assert found_panes == expected
    on_time = [
        epoch
        for epoch, windows in enumerate(found_panes)
        for rows in windows.values()
        for row in rows
        if row[4] == "ON_TIME"
    ]
    assert {*on_time} == {epochs - 1}
    check_catalog(open_store(named_root.as_uri()), "ways")
