"""Circles of pipelines that read each other: none of them could ever be the first to be computed."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import PipelineError

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline

N = TypeVar("N")


class UpstreamCycleError(PipelineError, code="config.upstream_cycle"):
    """A pipeline reads itself, through whatever others."""

    @classmethod
    def along(cls, circle: Iterable[object]) -> "UpstreamCycleError":
        """The error that names a ``circle``, with the same pipeline at both ends."""
        path = " reads ".join(map(str, circle))
        return cls(f"{path}: a pipeline cannot read itself, through whatever others; leave one of the inputs out")


def check_no_circle(start: N, upstreams: Callable[[N], Iterable[N]]) -> None:
    """Raise UpstreamCycleError, with the shortest way round, if ``start`` reads itself. ``upstreams`` is asked of each
    pipeline once.
    """
    ways: dict[N, tuple[N, ...]] = {start: (start,)}
    front = [start]
    for name in front:  # which grows
        for above in upstreams(name):
            if above == start:
                raise UpstreamCycleError.along((*ways[name], start))
            if above not in ways:
                ways[above] = (*ways[name], above)
                front.append(above)


def check_beside(pipeline: "Pipeline", beside: "Iterable[Pipeline]" = ()) -> None:
    """Raise UpstreamCycleError if ``pipeline`` reads itself through those ``beside`` it, whatever root they are under:
    what is read under a root that is named counts for nothing.
    """
    known = {one.name: one for one in (*beside, pipeline)}
    check_no_circle(pipeline.name, lambda name: read_beside(known[name]) if name in known else ())


def read_beside(pipeline: "Pipeline") -> list[str]:
    """The pipelines that ``pipeline`` reads under its own root, whatever that is."""
    if not any(given.source.is_upstream for given in pipeline.inputs):
        return []
    from headrace.pipeline.following.upstream_source import upstream_sources  # which most pipelines do without

    return [source.pipeline for source in upstream_sources(pipeline).values() if source.root is None]
