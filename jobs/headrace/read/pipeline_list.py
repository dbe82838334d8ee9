"""Which pipelines there are, and how far each has come under a root: ``headrace pipelines``."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model.time import render
from headrace.pipeline.loading.registry import registered_files
from headrace.read.snapshots.output_positions import OutputPosition, output_positions
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class PipelinePosition:
    """How far a pipeline has come: the epochs of main and of what is published, and the watermark of main. None: there
    is no snapshot yet. ``outputs``: where each of several is.
    """

    main: int | None
    published: int | None
    watermark: str | None
    outputs: tuple[OutputPosition, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON value; ``outputs`` where these have names."""
        fields = {"main": self.main, "published": self.published, "watermark": self.watermark}
        return fields | ({"outputs": [output.to_json() for output in self.outputs]} if self.outputs else {})


@dataclass(frozen=True)
class ListedPipeline:
    """A pipeline. ``description`` and ``source`` are None for one that has results and is not registered; ``position``
    is None if no root was asked for.
    """

    name: str
    description: str | None
    source: str | None
    position: PipelinePosition | None

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "name": self.name,
            "description": self.description,
            "source": self.source,
            **({} if self.position is None else self.position.to_json()),
        }


@dataclass(frozen=True)
class PipelineList:
    """The pipelines, and why each of the files that cannot be used cannot."""

    pipelines: tuple[ListedPipeline, ...]
    broken: Mapping[Path, str]

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON value: the pipelines."""
        return [pipeline.to_json() for pipeline in self.pipelines]

    def rows(self) -> list[dict[str, Any]]:
        """Rows of a table with the same columns: each pipeline, and below it its outputs where they have names."""
        rows = [row for pipeline in self.pipelines for row in _rows_of(pipeline)]
        return rows if any(row.get("parked") for row in rows) else [_without(row, "parked") for row in rows]

    def _repr_html_(self) -> str:
        from headrace.read.html import html_table  # of notebooks

        rows = self.rows()
        return html_table([*rows[0]] if rows else ["name"], rows, "pipelines")


def _rows_of(pipeline: ListedPipeline) -> Iterator[dict[str, Any]]:
    own = _without(pipeline.to_json(), "outputs")
    yield own if pipeline.position is None else own | {"parked": None}
    for output in () if pipeline.position is None else pipeline.position.outputs:
        yield {
            **dict.fromkeys(own),
            "name": f"{pipeline.name}.{output.name}",
            "main": own["main"],
            "published": output.published_epoch,
            "parked": None if output.parked is None else output.parked.describe(),
        }


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def pipeline_list(store: ObjectStore | None, with_results: Iterable[str] = ()) -> PipelineList:
    """The registered pipelines, then those ``with_results`` that are not registered; with a ``store`` also how far each
    has come there.
    """
    files = registered_files()
    names = [*files.pipelines, *sorted({*with_results} - {*files.pipelines})]
    pipelines = []
    for name in names:
        position = None if store is None else _position(Catalog(store, name))
        if name in files.pipelines:
            own = files.pipelines[name].pipeline
            pipelines.append(ListedPipeline(name, own.description, own.source.place, position))
        else:
            pipelines.append(ListedPipeline(name, None, None, position))
    return PipelineList(tuple(pipelines), files.broken)


def _position(catalog: Catalog) -> PipelinePosition:
    refs = catalog.head().refs
    main, published = (
        None if snapshot is None else catalog.manifest(snapshot)
        for snapshot in (refs.get(MAIN), catalog.published_by_all(refs))
    )
    return PipelinePosition(
        None if main is None else main.epoch,
        None if published is None else published.epoch,
        None if main is None else render(StoredProgress.of(main).watermark),
        () if main is None else output_positions(catalog, refs, main),
    )
