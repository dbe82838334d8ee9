"""An executor that computes like ``local``, and tells each run whose computer it uses."""

from typing import Any, Final

from headrace.ext.executors import Execution, Executor, ExecutorRun, executor


def _open_announced(run: ExecutorRun, given_session: Any) -> Execution:
    run.note("Acme computes this")
    return executor("local").open(run, given_session)


ANNOUNCED_EXECUTOR: Final = Executor("a process on Acme's computers", _open_announced)
