"""What a database means by an SQLSTATE: its class, the first two characters, says what the caller should do."""

from typing import Final

LOGIN: Final = "28"
"""A login that is wrong."""

WRONG_LOGIN: Final = "authentication failed"
"""What libpq says of one, to which it gives no SQLSTATE."""

REFUSED: Final = (LOGIN, "3D", "42")
"""It would say so again: that, a database that there is not, a query that names what there is not or is not allowed."""

PASSING: Final = ("08", "40", "53", "55", "57", "58")
"""It may be different soon: no connection, rolled back, no resources, a lock, an operator, the system."""

DATA: Final = ("22", "23")
"""A value that has no place, a row that is there twice."""
