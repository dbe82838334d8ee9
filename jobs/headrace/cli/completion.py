"""What a shell offers while somebody types: names of pipelines, branches, tags and snapshots.

Whatever goes wrong here offers nothing: a shell has no place for an error, and the command itself will tell it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click

from headrace_snapshots.refs import MAIN, PUBLISHED, TAGS

if TYPE_CHECKING:
    from headrace_snapshots.catalog import Catalog

_RECENT = 20
"""Entries of the log whose snapshots are offered."""

_FIXED = {MAIN, PUBLISHED}

_SHELLS = ("bash", "zsh", "fish")


def complete_pipeline(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Registered names."""
    return _offered(_registered, incomplete)


def complete_branch(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Branches and tags of the pipeline that the line names."""
    return _offered(lambda: [*_FIXED, *_names(ctx)], incomplete)


def complete_at(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Branches, tags, and the newest snapshots of the pipeline that the line names."""
    return _offered(lambda: [*_FIXED, *_names(ctx), *_recent(ctx)], incomplete)


def complete_droppable(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of branches and tags that can be dropped."""
    return _offered(lambda: _names(ctx) - _FIXED, incomplete)


def complete_snapshot(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Branches, tags, and the newest snapshots of the pipeline that the line names."""
    return _offered(lambda: [*_names(ctx), *_recent(ctx)], incomplete)


def show_completion(program: str) -> click.Option:
    """The option that prints the script with which a shell completes ``program``."""

    def show(ctx: click.Context, _param: click.Parameter, shell: str | None) -> None:
        if shell is None:
            return
        from click.shell_completion import get_completion_class

        completion = get_completion_class(shell)
        assert completion is not None  # Click has those of _SHELLS
        click.echo(completion(ctx.command, {}, program, f"_{program.upper()}_COMPLETE").source())
        ctx.exit()

    return click.Option(
        ["--show-completion"],
        type=click.Choice(_SHELLS),
        is_eager=True,
        expose_value=False,
        callback=show,
        help='Print what makes a shell complete names: eval "$(headrace --show-completion bash)" in ~/.bashrc.',
    )


def _offered(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return sorted({name for name in names() if name.startswith(incomplete)})
    except Exception:
        return []


def _registered() -> Iterable[str]:
    from headrace.pipeline.loading.registry import registered_files

    return registered_files().pipelines


def _names(ctx: click.Context) -> set[str]:
    head = _catalog(ctx).head()
    return {name.removeprefix(TAGS) for name in (*head.refs, *head.generations)}


def _recent(ctx: click.Context) -> set[str]:
    moves = [entry.moves for entry in islice(_catalog(ctx).entries(), _RECENT)]
    return {after for move in moves for _, after in move.values() if after is not None}


def _catalog(ctx: click.Context) -> "Catalog":
    from headrace.cli.catalog_names import handle_of

    # a line that ends with an option is not taken apart to its end: its arguments are what is left
    return handle_of(ctx.params.get("pipeline") or ctx.args[0], ctx.params["root"]).catalog
