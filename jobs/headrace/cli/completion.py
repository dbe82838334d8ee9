"""What a shell offers while somebody types: names of pipelines, branches, tags and snapshots.

Whatever goes wrong here offers nothing: a shell has no place for an error, and the command itself will tell it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import typer

from headrace_snapshots.refs import MAIN, PUBLISHED, TAGS

if TYPE_CHECKING:
    from headrace_snapshots.catalog import Catalog

_RECENT = 20
"""Entries of the log whose snapshots are offered."""

_FIXED = {MAIN, PUBLISHED}


def complete_pipeline(incomplete: str) -> list[str]:
    """Registered names."""
    return _offered(_registered, incomplete)


def complete_branch(ctx: typer.Context, incomplete: str) -> list[str]:
    """Branches and tags of the pipeline that the line names."""
    return _offered(lambda: [*_FIXED, *_names(ctx)], incomplete)


def complete_at(ctx: typer.Context, incomplete: str) -> list[str]:
    """Branches, tags, and the newest snapshots of the pipeline that the line names."""
    return _offered(lambda: [*_FIXED, *_names(ctx), *_recent(ctx)], incomplete)


def complete_droppable(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those that can be dropped."""
    return _offered(lambda: _names(ctx) - _FIXED, incomplete)


def complete_snapshot(ctx: typer.Context, incomplete: str) -> list[str]:
    """Branches, tags, and the newest snapshots of the pipeline that the line names."""
    return _offered(lambda: [*_names(ctx), *_recent(ctx)], incomplete)


def _offered(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return sorted({name for name in names() if name.startswith(incomplete)})
    except Exception:
        return []


def _registered() -> Iterable[str]:
    from headrace.pipeline.registry import registered_files

    return registered_files().pipelines


def _names(ctx: typer.Context) -> set[str]:
    head = _catalog(ctx).head()
    return {name.removeprefix(TAGS) for name in (*head.refs, *head.generations)}


def _recent(ctx: typer.Context) -> set[str]:
    moves = [entry.moves for entry in islice(_catalog(ctx).entries(), _RECENT)]
    return {after for move in moves for _, after in move.values() if after is not None}


def _catalog(ctx: typer.Context) -> "Catalog":
    from headrace.cli.named import catalog_of

    # a line that ends with an option is not taken apart to its end: its arguments are what is left
    return catalog_of(ctx.params.get("pipeline") or ctx.args[0], ctx.params["root"])
