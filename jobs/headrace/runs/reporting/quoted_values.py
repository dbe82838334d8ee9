"""Messages for people who may not see values of records: those that may quote one are not shown.

An error of the configuration names definitions and settings, one of stored objects their paths, one of an audit its
expectations and limits. All others may quote a key or a record, those among them that code of users has raised.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headrace.audit.store import AuditFailedError, LimitExceededError, StaleDataError, UnusualDataError
from headrace.sources.chain_clocks import Parked

NOT_SHOWN: Final = "not shown, since it may quote values of records"
"""Instead of a message."""

_BRANCHES: Final = ("config.", "restore.")
_OF_CODE_OF_USERS: Final = frozenset(
    {"config.spark_function", "config.expectation_not_evaluated", "config.pipeline_file"}
)
_WITHOUT: Final = frozenset(
    {"left_out", *(kind.code for kind in (AuditFailedError, LimitExceededError, UnusualDataError, StaleDataError))}
)


def message_without_values(code: str, message: str) -> str:
    """The ``message`` of an error, unless one of its ``code`` may quote values."""
    is_shown = code in _WITHOUT or (code.startswith(_BRANCHES) and code not in _OF_CODE_OF_USERS)
    return message if is_shown else NOT_SHOWN


def warnings_without_values(warnings: Sequence[str]) -> tuple[str, ...]:
    """How many ``warnings`` there are: any of them may quote values."""
    if not warnings:
        return ()
    return (("1 warning: " if len(warnings) == 1 else f"{len(warnings):,} warnings: ") + NOT_SHOWN,)


def parked_without_values(parked: Parked | None) -> Parked | None:
    """Why an output stands still, unless that may quote values."""
    return parked and replace(parked, message=message_without_values(parked.code, parked.message))
