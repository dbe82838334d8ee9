"""What a database means by an SQLSTATE, which says what the caller should do. Where single codes of a class mean
something else than the others, they are named; classes that are not named refuse: they would say the same again.
"""

from enum import StrEnum
from typing import Final


class SqlAnswer(StrEnum):
    """What a database says: the login is wrong; what is asked for is not there or not allowed; a value has no place; or
    it may say something else soon.
    """

    LOGIN = "login"
    REFUSED = "refused"
    DATA = "data"
    PASSING = "passing"


WRONG_LOGIN: Final = "authentication failed"
"""What libpq says of one, to which it gives no SQLSTATE."""

_CLASSES: Final = {
    "08": SqlAnswer.PASSING,  # no connection
    "22": SqlAnswer.DATA,
    "23": SqlAnswer.DATA,  # a row that is there twice, or that a constraint does not let in
    "28": SqlAnswer.LOGIN,
    "40": SqlAnswer.PASSING,  # rolled back: a deadlock, another transaction
    "44": SqlAnswer.DATA,  # a view does not let it in
    "53": SqlAnswer.PASSING,  # no resources: a full disk, no memory, too many connections
    "57": SqlAnswer.PASSING,  # an operator, a time limit
    "58": SqlAnswer.PASSING,  # the system
    "72": SqlAnswer.PASSING,  # a snapshot that is too old
}
_CODES: Final = {
    "25P03": SqlAnswer.PASSING,  # time limits of a transaction
    "25P04": SqlAnswer.PASSING,
    "53400": SqlAnswer.REFUSED,  # a limit that somebody has set
    "54000": SqlAnswer.DATA,  # a row, or its entry in an index, is too long
    "55006": SqlAnswer.PASSING,  # in use
    "55P03": SqlAnswer.PASSING,  # locked
    "57P04": SqlAnswer.REFUSED,  # the database was dropped
    "58P01": SqlAnswer.REFUSED,  # a file that it lacks
    "58P02": SqlAnswer.REFUSED,
}
_WITHOUT_A_STATE: Final = (
    (WRONG_LOGIN, SqlAnswer.LOGIN),
    ("no password supplied", SqlAnswer.LOGIN),
    ("no pg_hba.conf entry", SqlAnswer.LOGIN),
    ("is not permitted to log in", SqlAnswer.LOGIN),
    ("does not exist", SqlAnswer.REFUSED),  # a database, a role, a file of certificates
    ("permission denied", SqlAnswer.REFUSED),
    ("certificate verify failed", SqlAnswer.REFUSED),
    ("does not support SSL", SqlAnswer.REFUSED),
    ("invalid value for parameter", SqlAnswer.REFUSED),
    (": invalid ", SqlAnswer.REFUSED),  # an option of the connection
    ("is not currently accepting connections", SqlAnswer.REFUSED),
)
"""What PostgreSQL's client says of a connection that was refused, which has no SQLSTATE; in English."""


def answer_of(state: str, text: str) -> SqlAnswer:
    """What a database means by an error: its SQLSTATE, "" where nothing was connected, and its ``text``."""
    if state:
        return _CODES.get(state) or _CLASSES.get(state[:2], SqlAnswer.REFUSED)
    return next((answer for words, answer in _WITHOUT_A_STATE if words in text), SqlAnswer.PASSING)
