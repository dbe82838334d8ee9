"""Why an output of a branch cannot become that of main."""

from headrace.errors import FixConfigError


class NotAdoptableError(FixConfigError):
    """What a branch has computed of an output is not what main would have, had it computed that."""

    code = "config.not_adoptable"
