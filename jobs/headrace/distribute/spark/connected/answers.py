"""What a database has said to code of users that reaches it through Spark: to Java's driver, or to Python's."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from headrace.connections import Connection, failure, in_a_line
from headrace.sql_states import SqlAnswer, answer_of


@dataclass(frozen=True)
class DatabaseAnswer:
    """What a database says: its SQLSTATE, and a text in a line."""

    state: str
    text: str

    @property
    def refuses(self) -> bool:
        """Whether it would say the same again."""
        return self._answer in (SqlAnswer.LOGIN, SqlAnswer.REFUSED)

    @property
    def passes(self) -> bool:
        """Whether it may say something else soon; so where nothing was connected, which has no SQLSTATE."""
        return self._answer is SqlAnswer.PASSING

    @property
    def _answer(self) -> SqlAnswer:
        return answer_of(self.state, self.text)


def answer_of_database(error: Exception, connection: Connection | None) -> DatabaseAnswer | None:
    """What a database says that a driver of Python or Java has asked; None if it is no error of one."""
    if hasattr(error, "sqlstate"):  # psycopg's; None where nothing was connected
        return DatabaseAnswer(error.sqlstate or "", failure(error, connection))
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)  # as py4j or PySpark has it
    with suppress(Py4JError):  # a JVM that is gone
        while java is not None:
            with suppress(Py4JError):  # it is no SQLException
                return DatabaseAnswer(java.getSQLState() or "", in_a_line(java.getMessage(), connection))
            java = java.getCause()
    return None
