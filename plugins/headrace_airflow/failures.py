"""Typed errors in Airflow's terms: what a retry cannot help fails at once, the rest is retried."""

import logging
import signal
from traceback import format_exception

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RestoreError, RetryError
from headrace.runs.reporting.results import RunError, redacted
from headrace_airflow.forms import FormError

_log = logging.getLogger("airflow.task")
_ADVICE = {
    FormError.code: "Nothing was done. Trigger a new run with correct values.",
    FixConfigError.remedy: "Change the configuration, then clear this task.",
    FixDataError.remedy: "Correct the data, then trigger a new run.",
    RetryError.remedy: "Airflow tries again.",
    RestoreError.remedy: "Trigger the recover DAG with an older snapshot.",
    GiveUpError.remedy: "Not retried: find out why before you trigger a new run.",
}
_REMEDIES = {
    branch.exit_code: branch.remedy for branch in (FixConfigError, FixDataError, RetryError, RestoreError, GiveUpError)
}
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


def airflow_error(error: RunError) -> AirflowException:
    """``error`` as what a task raises: AirflowException when a retry may help, else AirflowFailException."""
    kind = AirflowException if error.remedy == RetryError.remedy else AirflowFailException
    return kind(f"{error.code}: {error.message}\n{_ADVICE.get(error.code) or _ADVICE.get(error.remedy, '')}".rstrip())


def error_of_exit_code(exit_code: int, detail: str) -> RunError:
    """What is known of an application that left no result object; a code of its own making (137, say) is retried.

    One below zero is that of a signal.
    """
    remedy = _REMEDIES.get(exit_code, RetryError.remedy)
    how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {signal.Signals(-exit_code).name}"
    killer = "" if exit_code not in _KILLED else " (the operating system ends processes so when memory runs out)"
    message = f"the application ended with {how}{killer} and no result; its last output: {detail}"
    return RunError("no_result", remedy, message)


class headrace_errors:  # noqa: N801  # a context manager, called like a function
    """Raise what Headrace raises inside as what Airflow understands: one message, its details folded above it.

    The error that leaves has no frames of ours, which would bury the message in the task's log.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HeadraceError):
            _log.info("::group::Details of the error")
            _log.info(redacted("".join(format_exception(error))))
            _log.info("::endgroup::")
            raise airflow_error(RunError.of(error)) from None
        if isinstance(error, AirflowException):
            raise error.with_traceback(None) from None
