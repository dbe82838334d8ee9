"""Which pipelines there are, and how far each has come under a root: ``headrace pipelines``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.model.time import render
from headrace.pipeline.loading.registry import registered_files
from headrace.read.html import html_table
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class PipelinePosition:
    """How far a pipeline has come: the epochs of main and of what is published, and the watermark of main. None: there
    is no snapshot yet.
    """

    main: int | None
    published: int | None
    watermark: str | None


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
            **({} if self.position is None else vars(self.position)),
        }


@dataclass(frozen=True)
class PipelineList:
    """The pipelines, and why each of the files that cannot be used cannot."""

    pipelines: tuple[ListedPipeline, ...]
    broken: Mapping[Path, str]

    def to_json(self) -> list[dict[str, Any]]:
        """A JSON value: the pipelines."""
        return [pipeline.to_json() for pipeline in self.pipelines]

    def _repr_html_(self) -> str:
        return html_table([*self.to_json()[0]] if self.pipelines else ["name"], self.to_json(), "pipelines")


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
            pipelines.append(ListedPipeline(name, own.description, own.source.path, position))
        else:
            pipelines.append(ListedPipeline(name, None, None, position))
    return PipelineList(tuple(pipelines), files.broken)


def _position(catalog: Catalog) -> PipelinePosition:
    refs = catalog.head().refs
    main, published = (catalog.manifest(refs[ref]) if ref in refs else None for ref in (MAIN, PUBLISHED))
    return PipelinePosition(
        None if main is None else main.epoch,
        None if published is None else published.epoch,
        None if main is None else render(StoredProgress.of(main).watermark),
    )
