"""The group of commands ``headrace``: Headrace's own, and those that other packages add.

A package adds a command as an entry point of the group ``headrace.commands``: a ``click.Command``, by its name. It may
make one with ``headrace.cli.app.separate_command``, of a function like Headrace's own commands::

    [project.entry-points."headrace.commands"]
    simulate = "headrace_lab.commands.simulate:simulate"

It is looked for when somebody types its name, so that nothing else waits for it: ``headrace --help`` does not list it.
One that nobody has is a wrong command line; one that cannot be loaded is the error config.entry_point.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from headrace.cli.display.output import Format, reported
from headrace.cli.exit_codes import INTERRUPTED
from headrace.entry_points import EntryPointGroup
from headrace.extras import require_library
from headrace.terminal import visible

COMMANDS: Final[EntryPointGroup[click.Command]] = EntryPointGroup("headrace.commands", "command")
LAB: Final = ("conformance", "simulate")
"""Commands of the package headrace_lab, which comes with the repository."""

MORE_COMMANDS: Final = f"Other packages may add commands: headrace-lab has {' and '.join(LAB)}."


class CommandGroup(click.Group):
    """The commands; Ctrl-C ends any of them with the exit code of what was interrupted."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        with reported(Format.TEXT):
            added = COMMANDS.get(cmd_name)
            if added is None and cmd_name in LAB:
                require_library("headrace_lab", f"headrace {cmd_name}", "./lab in a clone of the repository")
            return added

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _visible_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _visible_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@contextmanager
def _visible_errors() -> Iterator[None]:
    """Have Click show the words of a command line that it finds fault with as text."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        if message == visible(message):
            raise
        raise click.UsageError(visible(message), error.ctx) from error
