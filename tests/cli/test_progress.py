"""The bar of a run in a terminal: files, epochs, rows, rate, and lines above it that stay."""

import io

import pytest
from rich.console import Console

from headrace.cli.display import Bar
from headrace_snapshots.format.manifest import Manifest
from tests.cli.deployments import Deployment, pane


@pytest.fixture
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    deployment.commit(panes=[pane("ann", 1, 2)])
    assert deployment.head is not None
    return deployment.head.replace(counts={"records": 3_000, "input_files": 2})


def test_a_bar_counts_files_epochs_and_rows_and_tells_the_rate(
    manifest: Manifest,
) -> None:
    seconds = iter((10.0, 11.0, 14.0))
    written_stream = io.StringIO()
    with Bar.show_on_console(
        Console(file=written_stream, force_terminal=True, width=200, highlight=False), seconds.__next__
    ) as bar:
        bar.noted("starting [Spark]")
        bar.planned(4)
        bar.committed(manifest)
        bar.committed(manifest.replace(epoch=1))
        bar.warned("one file is [odd]")
    text = written_stream.getvalue()
    assert "4/4" in text
    assert "2 epochs, 6,000 rows, 1,500 rows/s" in text
    assert "warning: one file is [odd]" in text
    assert "epoch 0: 3,000 records of 2 files" in text
