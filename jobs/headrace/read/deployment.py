"""The pipelines under a root, by name: how far each has come, and its results, without the files that define them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.model.arguments import Suggesting
from headrace.model.time import render, to_instant
from headrace.pipeline.loading.registry import UnknownPipelineError, registered_files
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import PIPELINES_AT_ONCE, PipelineReader, has_run, pipelines_under
from headrace.read.snapshots.progress import OutputPosition, StoredProgress, output_positions
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectStore, do_all

if TYPE_CHECKING:
    from headrace.read.lineage.lineage import Dependents, Lineage
    from headrace.read.lineage.waits import DeploymentWaits
    from headrace.read.snapshots.snapshot_refs import At


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
        return rows if any(row.get("parked") for row in rows) else [_without_column(row, "parked") for row in rows]

    def _repr_html_(self) -> str:
        from headrace.read.shown_values import html_table  # of notebooks

        rows = self.rows()
        return html_table([*rows[0]] if rows else ["name"], rows, "pipelines")


def _rows_of(pipeline: ListedPipeline) -> Iterator[dict[str, Any]]:
    own = _without_column(pipeline.to_json(), "outputs")
    yield own if pipeline.position is None else own | {"parked": None}
    for output in () if pipeline.position is None else pipeline.position.outputs:
        yield {
            **dict.fromkeys(own),
            "name": f"{pipeline.name}.{output.name}",
            "main": own["main"],
            "published": output.published_epoch,
            "parked": None if output.parked is None else output.parked.describe(),
        }


def _without_column(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def pipeline_list(store: ObjectStore | None, with_results: Iterable[str] = ()) -> PipelineList:
    """The registered pipelines, then other ones ``with_results``; with a ``store`` also how far each has come."""
    files = registered_files()
    names = [*files.pipelines, *sorted({*with_results} - {*files.pipelines})]
    positions: Sequence[PipelinePosition | None] = [None] * len(names)
    if store is not None:
        positions = do_all(store, lambda name: _read_position(Catalog(store, name)), names, PIPELINES_AT_ONCE)
    pipelines = []
    for name, position in zip(names, positions, strict=True):
        if name in files.pipelines:
            own = files.pipelines[name].pipeline
            pipelines.append(ListedPipeline(name, own.description, own.source.place, position))
        else:
            pipelines.append(ListedPipeline(name, None, None, position))
    return PipelineList(tuple(pipelines), files.broken)


def _read_position(catalog: Catalog) -> PipelinePosition:
    refs = catalog.head().refs
    snapshots = [refs.get(MAIN), catalog.published_by_all(refs)]
    main, published_manifest = do_all(
        catalog.store, lambda snapshot: None if snapshot is None else catalog.manifest(snapshot), snapshots
    )
    return PipelinePosition(
        None if main is None else main.epoch,
        None if published_manifest is None else published_manifest.epoch,
        None if main is None else render(StoredProgress.from_manifest(main).watermark),
        () if main is None else output_positions(catalog, refs, main),
    )


class UnknownResultsError(UnknownPipelineError, KeyError):
    """No pipeline of that name has run under the root."""

    def __str__(self) -> str:
        return str(self.args[0])


class Deployment(Suggesting, Mapping[str, PipelineReader]):
    """The pipelines that have run under a root, by name. What there is is looked up each time.

    A pipeline itself may stand for its name. It is then the definition that methods take which need one, and need not
    have run yet. In examples ``deployment`` is ``hr.open(root)``.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getitem__(self, name: str | Pipeline) -> "PipelineReader":
        """The results of pipeline ``name``. Raises UnknownResultsError for a name without any."""
        return PipelineReader(*self._find_pipeline(name))

    def pipelines(self) -> "PipelineList":
        """The registered pipelines and those that have run here, each with how far it has come.

        >>> {listed.name: listed.position.published for listed in deployment.pipelines().pipelines}
        {...'delays': 1, ...'traffic': 1}
        """

        return pipeline_list(self._store, self)

    def lineage(self, pipelines: Collection[Pipeline] = (), *, reader_roots: Sequence[str] = ()) -> "Lineage":
        """Which pipelines read which, in a consistent cut over all of them, and how far behind each is. What
        ``pipelines`` read is what they say, also before they have run; what others read, their newest snapshots say.
        Readers under other roots are seen by what they hold, or if the roots are named: here, or in
        HEADRACE_READER_ROOTS.

        >>> [(row["pipeline"], row["reads"], row["lag"]) for row in deployment.lineage().rows()]
        [('airports', 'delays', 'up to date'), ('delays', None, None), ('traffic', None, None)]
        """
        from headrace.read.lineage.lineage import read_lineage

        return read_lineage(self._store, self, reader_roots, pipelines)

    def waits(
        self, pipelines: Collection[Pipeline] = (), *, now: datetime, reader_roots: Sequence[str] = ()
    ) -> "DeploymentWaits":
        """What is still in flight at the time ``now`` (with its zone), and who waits for whom, in a consistent cut over
        all pipelines. For ``pipelines`` it looks for files that no run has read. Both arguments are otherwise as
        ``lineage`` has them.

        >>> waits = deployment.waits(now=datetime(2026, 3, 1, 12, tzinfo=UTC)).waits
        >>> [wait.why for wait in waits if str(wait.pipeline) == "delays"]
        ['open windows wait for 2026-03-01T11:59:59.999999Z; the watermark is at 2026-03-01T11:00:00Z, ...']
        """
        from headrace.read.lineage.waits import find_waits

        return find_waits(self._store, self, pipelines, to_instant(now), reader_roots)

    def dependents(self, of: str, at: "At" = PUBLISHED, *, reader_roots: Sequence[str] = ()) -> "Dependents":
        """The readers of pipeline ``of`` that have consumed the snapshot ``at``, or what came of it. ``reader_roots``
        as ``lineage`` has them.

        >>> [(str(reader.reader), reader.epoch) for reader in deployment.dependents("delays").readers]
        [('airports', 0)]
        """
        from headrace.read.lineage.lineage import find_dependents

        catalog, _ = self._find_pipeline(of)
        return find_dependents(self._store, self, catalog, at, reader_roots)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, Pipeline):
            name = name.name
        return isinstance(name, str) and has_run(self._store, name)

    def __iter__(self) -> Iterator[str]:
        return pipelines_under(self._store)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{self._store.uri}: pipelines {', '.join(self) or 'none'}>"

    def _find_pipeline(self, name: str | Pipeline) -> tuple[Catalog, Pipeline | None]:
        """The catalog of a pipeline, and its definition if that was given."""
        if isinstance(name, Pipeline):
            return Catalog(self._store, name.name), name
        if name not in self:
            pipeline, dot, output = str(name).partition(".")
            if dot and pipeline in self:
                raise UnknownResultsError(
                    f"no pipeline is called {name!r}; if {output!r} is an output of pipeline {pipeline}, write "
                    f"hr.open(...)[{pipeline!r}][{output!r}]"
                )
            names_text = ", ".join(self) or "none"
            raise UnknownResultsError(
                f"no pipeline {name!r} has run under {self._store.uri}; there are {names_text}. For a first run give "
                "the pipeline itself instead of its name"
            )
        return Catalog(self._store, name), None
