"""The exit codes of ``headrace``: what the caller of a command should do next, as in the tree of headrace.errors."""

from collections.abc import Iterator
from typing import Final

from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RestoreError, RetryError

DONE: Final = 0
FAILED_CASES: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_OF_BRANCHES: Final[dict[type[HeadraceError], str]] = {
    FixConfigError: "fix the pipeline, the command or the environment; trying again does not help",
    FixDataError: "correct the data (the input, or what an expectation found in the output), then run again",
    RetryError: "try again: something outside failed or was busy",
    RestoreError: "something stored is damaged or missing: go back to an older snapshot (headrace rollback, recover)",
    GiveUpError: "do not try again as it is: another writer has the branch, or an invariant broke",
}
_OTHERS: Final = {
    DONE: "done",
    FAILED_CASES: "test, conformance, simulate: one failed; diff --against, deliver --check: they differ; any other "
    "command: a mistake in Headrace, with a traceback",
    USAGE: "the command line is wrong: see headrace COMMAND --help",
    INTERRUPTED: "interrupted by Ctrl-C; what was committed stays",
}


def listed() -> Iterator[tuple[int, str]]:
    """Every exit code and what it means, in order."""
    yield from sorted({**_OTHERS, **{branch.exit_code: words for branch, words in _OF_BRANCHES.items()}}.items())
