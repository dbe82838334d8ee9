"""Why an output of a branch cannot become that of main."""

from headrace.errors import FixConfigError


class NotAdoptableError(FixConfigError, code="config.not_adoptable"):
    """What a branch has computed of an output is not what main would have, had it computed that."""
