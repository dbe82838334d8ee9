"""Conditions and orders that users write in DuckDB's SQL: parsed before they become part of a statement.

Words of SQL may also be names of columns (``at``, ``end``, ``order``). Where one cannot be the word, it is the column.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import FixConfigError
from headrace.model.arguments import shown
from headrace.read.views.database import without_rows


class QueryError(FixConfigError, code="config.query"):
    """A condition, an order, or columns that do not fit what is read."""


_QUERY: Final = "select * from view "
_EMPTY: Final[Any] = (None, [], {"map": []}, "STANDARD_HANDLING")
_WORD: Final = re.compile(rb"[\w\x80-\xff]+")


@dataclass(frozen=True)
class _Form:
    """What text has to be: ``keyword`` comes before it, ``part`` of the parsed statement is all that it may fill."""

    name: str
    keyword: str
    part: str


_CONDITION: Final = _Form("where", "where", "where_clause")
_ORDER: Final = _Form("order", "order by", "modifiers")


@dataclass(frozen=True)
class ParsedCondition:
    """A condition: ``sql`` stands for itself in any statement, ``tree`` is what DuckDB understands by it."""

    sql: str
    tree: Mapping[str, Any]


def condition(text: str, columns: Sequence[str]) -> ParsedCondition:
    """``text``, parsed. Raises QueryError if it is not a condition."""
    clause, tree = _parsed(text, columns, _CONDITION)
    return ParsedCondition(f"({clause}\n)", tree)


def order_by(text: str, columns: Sequence[str]) -> str:
    """``text`` as one or several expressions to order by. Raises QueryError if it is anything else, or more."""
    return f"{_parsed(text, columns, _ORDER)[0]}\n"


def _parsed(text: str, columns: Sequence[str], form: _Form) -> tuple[str, Any]:
    """``text``, names of columns quoted where DuckDB would take them for words of its language, and its syntax tree."""
    asked = f"{form.name}={shown(text)}"
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"{asked} is not text: some of it is no Unicode ({error.reason})") from error
    there = {name.lower() for name in columns}
    problem = ""
    with without_rows() as connection:
        while True:
            statement = f"{_QUERY}{form.keyword} ".encode()
            ((answer,),) = connection.execute(
                "select json_serialize_sql(?)", [(statement + encoded + b"\n").decode()]
            ).fetchall()
            parsed = json.loads(answer)
            if not parsed["error"]:
                break
            problem = problem or parsed["error_message"]
            at = int(parsed.get("position", 0)) - len(statement)
            names = [word for word in _bare(encoded) if word.start() <= at and word.group().decode().lower() in there]
            if not names:
                raise QueryError(f"{asked}: {problem}; the columns are {', '.join(columns)}")
            begin, end = names[-1].span()
            encoded = b'%b"%b"%b' % (encoded[:begin], encoded[begin:end], encoded[end:])
    if not _is_only(parsed["statements"], form):
        raise QueryError(
            f"{asked} must be one {'condition' if form is _CONDITION else 'order'} and nothing more; the columns are "
            f"{', '.join(columns)}"
        )
    return encoded.decode(), parsed["statements"][0]["node"][form.part]


def _bare(text: bytes) -> "Iterator[re.Match[bytes]]":
    """The words of ``text`` that are neither quoted nor in a comment."""
    import duckdb

    for begin, kind in duckdb.tokenize(text.decode()):
        word = _WORD.match(text, begin)
        if word is not None and kind in (duckdb.token_type.keyword, duckdb.token_type.identifier):
            yield word


def _is_only(statements: Sequence[dict[str, Any]], form: _Form) -> bool:
    """Whether there is one statement, which has nothing beside what was asked for."""
    node = statements[0]["node"]
    own = {"type", "select_list", "from_table", form.part}
    if len(statements) > 1 or node["type"] != "SELECT_NODE" or not node[form.part]:
        return False
    if form is _ORDER and [modifier["type"] for modifier in node["modifiers"]] != ["ORDER_MODIFIER"]:
        return False
    return all(value in _EMPTY for name, value in node.items() if name not in own)
