"""What readers of each output see now, and would see after a decision: the snapshots with their epochs."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import output_names
from headrace_snapshots.refs import MAIN, is_published, output_of, published_of

Readers = dict[str, dict[str, dict[str, Any] | None]]
"""By output ("": the one without a name): the snapshot ``before`` and ``after``, None where readers see nothing."""


def readers_after_moves(catalog: Catalog, moves: Mapping[str, Sequence[str | None]]) -> Readers:
    """After ``moves`` of refs, each from one snapshot to another."""
    after = {output_of(ref): to for ref, (_, to) in moves.items() if is_published(ref)}
    return _readers(catalog, {**_seen(catalog), **after})


def readers_after_release(catalog: Catalog, snapshot: str, output: str) -> Readers:
    """After a release of ``snapshot`` for one ``output``; "": for all."""
    seen = _seen(catalog)
    return _readers(catalog, {name: snapshot if output in ("", name) else shown for name, shown in seen.items()})


def readers_after_promotion(catalog: Catalog, branch: str) -> Readers:
    """After ``branch`` has become main, with the outputs that it has."""
    head = catalog.known_head().refs.get(branch)
    names = () if head is None else output_names(catalog.manifest(head))
    return _readers(catalog, dict.fromkeys(names, head))


def readers_after_patch(catalog: Catalog, branch: str) -> Readers:
    """After main has got one more epoch with rows of ``branch``."""
    main = catalog.known_head().refs.get(MAIN)
    if main is None:
        return {}
    patched = {"snapshot": f"a patch by {branch}", "epoch": catalog.link(main).epoch + 1}
    return {name: {"before": _named(catalog, seen), "after": patched} for name, seen in _seen(catalog).items()}


def _seen(catalog: Catalog) -> dict[str, str | None]:
    """What readers see of each output of main, and of those that have been published."""
    refs = catalog.known_head().refs
    names = output_names(catalog.manifest(refs[MAIN])) if MAIN in refs else ()
    return {**dict.fromkeys(names), **published_of(refs)}


def _readers(catalog: Catalog, after: Mapping[str, str | None]) -> Readers:
    seen = _seen(catalog)
    return {
        name: {"before": _named(catalog, seen.get(name)), "after": _named(catalog, after.get(name))}
        for name in {**seen, **after}
    }


def _named(catalog: Catalog, snapshot: str | None) -> dict[str, Any] | None:
    return None if snapshot is None else {"snapshot": snapshot, "epoch": catalog.link(snapshot).epoch}
