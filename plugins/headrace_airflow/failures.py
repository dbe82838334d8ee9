"""Typed errors in Airflow's terms: what a retry cannot help fails at once, the rest is retried."""

import logging
import signal
from datetime import timedelta
from traceback import format_exception
from typing import Any, Final, Self

from airflow.sdk import Context
from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowException

from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RestoreError, RetryError
from headrace.runs.reporting.results import RunError, redact_secrets
from headrace.this_process import escape_invisible
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
PROBLEM: Final = "problem"
"""Under this key a decision leaves why it was refused."""

_KILLED_CODES = (-signal.SIGKILL, 128 + signal.SIGKILL)


class TypedTaskError(AirflowException):
    """What a task raises of an error of Headrace's; the remedy of ``error`` says whether to try again. ``page``: the
    address of the page that shows more, with which message and log of the task end.
    """

    def __init__(self, error: RunError, page: str = "") -> None:
        advice = _ADVICE.get(error.code) or _ADVICE.get(error.remedy, "")
        super().__init__(escape_invisible("\n".join(filter(None, (f"{error.code}: {error.message}", advice, page)))))
        self.error, self.page = error, page

    def seen_at(self, page: str) -> Self:
        """The same, whose last line is the address of a ``page``."""
        return type(self)(self.error, page)


class TypedRetries(RetryPolicy):
    """Tries again what may succeed later, and fails at once what a person has to change first; what Headrace did not
    raise is as Airflow has it. It never goes beyond the ``retries`` of a task.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """What becomes of the task; Airflow logs the reason."""
        if not isinstance(exception, TypedTaskError):
            return RetryDecision.default()
        error = exception.error
        if error.remedy == RetryError.remedy:
            return RetryDecision.retry(reason=f"{error.code} may succeed later")
        return RetryDecision.fail(reason=f"{error.code} stays until a person does something about it")


RETRIES: Final[dict[str, Any]] = {
    "retries": 2,
    "retry_delay": timedelta(seconds=15),
    "retry_policy": TypedRetries(),
}
"""How every task is tried again unless it says otherwise itself."""


def error_of_exit_code(exit_code: int, detail: str) -> RunError:
    """What is known of an application that left no result object; a code of its own making (137, say) is retried.

    One below zero is that of a signal.
    """
    remedy = _REMEDIES.get(exit_code, RetryError.remedy)
    how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {signal.Signals(-exit_code).name}"
    killer = "" if exit_code not in _KILLED_CODES else " (the operating system ends processes so when memory runs out)"
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
            _log.info("%s", escape_invisible(redact_secrets("".join(format_exception(error)))))
            _log.info("::endgroup::")
            raise TypedTaskError(RunError.of(error)) from None
        if isinstance(error, AirflowException):
            raise error.with_traceback(None) from None


class problem_left:  # noqa: N801  # a context manager, called like a function
    """What is raised inside for people is left under PROBLEM, for the dialog that started the run."""

    def __init__(self, context: Context) -> None:
        self._task = context["ti"]

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TypedTaskError):
            self._task.xcom_push(key=PROBLEM, value=escape_invisible(f"{error.error.code}: {error.error.message}"))
