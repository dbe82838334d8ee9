"""A sink, whatever kind it is: a system beside the root that follows what readers see. It is no part of what a pipeline
means.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from headrace.model.arguments import Arguments, Suggesting

CONNECTION_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Sink(Suggesting):
    """A target of some ``kind`` that holds what readers see. ``connection`` names how it is reached, "" if by none."""

    kind: ClassVar[str]

    gets_final_rows: ClassVar[bool] = False
    """Whether it gets rows once they are final, and cannot take one back."""

    name: str
    connection: str

    @property
    def table_of_rows(self) -> str | None:
        """What comparisons call the table that it fills; None if it fills none."""
        return None

    def refuses_column(self, name: str) -> str | None:
        """Say why the target cannot have a column; asked when a pipeline is defined. It raises nothing.

        :param name: the column's name.
        :returns: words for a person; None, as by default, if it can, or if that shows at a delivery.
        """
        del name
        return None


@dataclass(frozen=True)
class FunctionSink(Sink):
    """A ``function`` (``module:function``) of the user's. ``package`` says which folder the module lies in, if it lies
    beside the pipeline's file.
    """

    function: str
    package: str | None = field(default=None, repr=False, compare=False)


def function_name(given: Arguments, function: object, example: str) -> str:
    """The name of ``module:function`` in its module."""
    module, _, called = given.text("function", function, example).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), called)):
        raise given.wrong("function", function, f"write module:function, as in {example}")
    return called


def sink_name(given: Arguments, name: object, table: str) -> str:
    called = _NO_NAME.sub("_", table)[:100] if name is None else given.text("name", name, "reports.sales")
    if not _NAME.fullmatch(called):
        raise given.wrong("name", called, "write letters, digits, ., - and _, at most 100")
    return called


def connection_name(given: Arguments, value: object) -> str:
    """The argument ``connection``. Raises the error of ``given``."""
    if not isinstance(value, str) or not CONNECTION_NAME.fullmatch(value):
        # not quoted: it may be a URI with a password
        raise given.wrong(
            "connection", "...", "write the name of a connection (lower case letters, digits and _), never its URI"
        )
    return value


def named_sinks(given: Arguments, sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """The argument ``sinks``, each with a name of its own. Raises the error of ``given``."""
    several = given.several("sinks", sinks, Sink, 'postgres("reports.sales", connection="warehouse")')
    names = [sink.name for sink in several]
    for name in names:
        if names.count(name) > 1:
            raise given.wrong("sinks", name, "two sinks have this name; give one of them a name= of its own")
    return several
