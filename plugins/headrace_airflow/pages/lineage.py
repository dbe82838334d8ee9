"""What a pipeline reads of others, and its readers, as far as a user may see these."""

from collections.abc import Callable, Iterable
from typing import Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

from headrace.errors import FixConfigError
from headrace.read.lineage.lineage import ReaderProgress
from headrace.read.lineage.neighbours import neighbours_of
from headrace.read.lineage.placed import PlacedPipeline, RootStores
from headrace.runs.reporting.results import redacted
from headrace_airflow.pages.access import Place, visible_to
from headrace_airflow.pages.opened_roots import OpenedRoot, OpenedRoots
from headrace_airflow.pages.wording import told
from headrace_snapshots.store import ObjectStore


class UnservedRootError(FixConfigError, code="config.unserved_root"):
    """A pipeline lies under a root that this Airflow does not serve, so no page of it opens that."""


def neighbours(roots: OpenedRoots, root: OpenedRoot, pipeline: str, user: BaseUser) -> dict[str, Any]:
    """How far ``pipeline`` has come with what it ``reads``, and how far its ``readers`` have, as a JSON value; those
    furthest behind first. ``hidden`` is how many there are besides whose DAGs ``user`` may not read.
    """

    seen = neighbours_of(RootStores(root.store, opened_by(roots)), pipeline)
    others = [one.upstream for one in seen.reads] + [one.reader for one in seen.readers]
    others += [one.upstream if one.reader.name == pipeline else one.reader for one in seen.unseen]
    places = {other: place_under(roots, root, other) for other in others}
    visible = visible_to(user, {place for place in places.values() if place is not None})

    def may_see(other: PlacedPipeline) -> bool:
        return places[other] is None or places[other] in visible

    def named(other: PlacedPipeline) -> dict[str, Any]:
        place = places[other]
        if place is None:
            return {"pipeline": redacted(str(other)), "has_page": False}
        return {"pipeline": roots.named(place[0]).root.qualified(place[1]), "has_page": True}

    own = PlacedPipeline("", pipeline)
    return {
        "reads": [
            *({**named(one.upstream), **line_of(one)} for one in worst_first(seen.reads) if may_see(one.upstream)),
            *(
                {**named(one.upstream), "lag": told(one.why), "is_well": False}
                for one in seen.unseen
                if one.reader == own and may_see(one.upstream)
            ),
        ],
        "readers": [
            *({**named(one.reader), **line_of(one)} for one in worst_first(seen.readers) if may_see(one.reader)),
            *(
                {**named(one.reader), "lag": told(one.why), "is_well": False}
                for one in seen.unseen
                if one.reader != own and may_see(one.reader)
            ),
        ],
        "hidden": sum(not may_see(other) for other in places),
    }


def opened_by(roots: OpenedRoots) -> Callable[[str], ObjectStore]:
    """Opens the store of a root that is served, by its URI; raises UnservedRootError for others."""

    def opened(uri: str) -> ObjectStore:
        at = roots.at(uri)
        if at is None:
            raise UnservedRootError(f"this Airflow does not serve {uri}")
        return at.store

    return opened


def place_under(roots: OpenedRoots, root: OpenedRoot, other: PlacedPipeline) -> Place | None:
    """Under which served root a pipeline lies; None: under none."""
    at = roots.at(other.root) if other.root else root
    return None if at is None else (at.root.name, other.name)


def line_of(one: ReaderProgress) -> dict[str, Any]:
    """How far one input has come, as a JSON value."""
    return {
        "input": one.name,
        "output": one.output,
        "consumed": one.consumed,
        "consumed_epoch": None if one.consumed is None else one.consumed_epoch,
        "published": one.published,
        "published_epoch": one.published_epoch,
        "lag": one.lag,
        "is_well": _behind(one) == (0, 0),
    }


def worst_first(readings: Iterable[ReaderProgress]) -> list[ReaderProgress]:
    """Sort readings: those that are furthest behind come first."""
    return sorted(readings, key=_behind, reverse=True)


def _behind(one: ReaderProgress) -> tuple[int, int]:
    """Whether its next run has to take something back, or may stop; and how many epochs it is behind."""
    if not one.is_in_line:
        return 1, 0
    return 0, 0 if one.published_epoch is None else one.published_epoch - one.consumed_epoch
