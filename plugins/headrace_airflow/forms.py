"""Forms: fields that are options of a run, and the reasons that decisions ask people for.

Fields are made of the declarations of options (``headrace.runs.options``). Airflow checks each field by itself, takes
keys that the form does not have, and knows nothing of how two fields agree. So the first task of a run checks what its
form says. The log of a pipeline says of a decision who made it, why, and in which run of Airflow. By that run an
attempt finds what an attempt before it has done. A task may be killed after it has acted and before Airflow knows, or
cleared; what the run decided happens once all the same.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from airflow.sdk import Context, Param
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.errors import FixConfigError
from headrace.ext.executors import EXECUTORS
from headrace.model.arguments import did_you_mean
from headrace.model.time import render_duration
from headrace.pipeline.deployment import NEVER, Backfill
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import AUTO
from headrace.runs.option_kinds import BranchOption, ExecutorNameOption, OutputOption, RunOption
from headrace.runs.option_values import parse_signal, parse_span
from headrace.runs.options import RunOptions, options_of_form, options_of_method
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, NAME

END: Final = r"$(?!\n)"
"""The end of a pattern: ``$`` also matches before a last newline, in Python; browsers do not know ``\\Z``."""

LENGTH_PATTERN: Final = f"^([0-9.]+ *[A-Za-z]+ *)*{END}"
"""A length of time, as a form takes it."""


_HANDED_ON: Final = ("branch", "executor")
"""Options that every task hands on, whatever its form says of them."""


class FormError(FixConfigError, code="config.form"):
    """The form or configuration of a run says what its DAG cannot do."""


def check_form(context: Context, pipeline: Pipeline, names: Collection[str]) -> None:
    """Raise FormError, before anything is done, if this run's form of the fields ``names`` is wrong."""
    check_names(context, names)
    try:
        _check_values(pipeline, context.get("params") or {})
    except FormError:
        raise
    except FixConfigError as error:
        raise FormError(str(error)) from error


def _check_values(pipeline: Pipeline, values: Mapping[str, Any]) -> None:
    signals = tuple(map(parse_signal, values.get("signals") or ()))
    RunOptions(run_id="form", branch=values.get("branch") or MAIN, signals=signals)
    parse_span(values.get("from") or None, values.get("to") or None)
    output, is_patch = values.get("output"), values.get("patch")
    if is_patch and values.get("promote") == NEVER:
        raise FormError("a patch is a way to promote, and the form says never to promote: choose one of them")
    if is_patch and not output and pipeline.has_names:
        raise FormError(f"a patch is of one output: choose one of {', '.join(pipeline.outputs)}")
    options_given = [name for name in ("from", "to", "files_per_epoch", "bytes_per_epoch") if values.get(name)]
    if output and not is_patch and options_given:
        raise FormError(
            f"output {output} is computed again in the epochs that main recorded, all of them: leave out "
            f"{', '.join(options_given)}; or choose no output, or a patch"
        )
    if unknown := {signal.name for signal in signals} - set(pipeline.signals):
        raise FormError(
            f"nothing in {pipeline.name} waits for a signal {min(unknown)!r}; it waits for: "
            f"{', '.join(pipeline.signals) or 'none'}"
        )


def check_names(context: Context, names: Collection[str]) -> None:
    """Raise FormError if the configuration of this run names what is not among ``names``, the fields of its form."""
    run = context.get("dag_run")
    for name in getattr(run, "conf", None) or {}:
        if name not in names:
            raise FormError(
                f"the configuration of this run names {name!r}, which this DAG does not know; "
                f"{did_you_mean(name, names)}it knows {', '.join(names)}"
            )


def option_fields(form: str, pipeline: Pipeline | None = None, **values: Any) -> dict[str, Param]:
    """The fields of a form of ``pipeline``, or of a decision. ``values`` are what those say that nobody has touched,
    where that is not the option's default.
    """
    asking = None if pipeline is None else _Asking.from_pipeline(pipeline)
    return {name: Param(**{**field}) for name, field in _field_schemas(form, asking, tuple(values.items())).items()}


def option_flags(form: str, pipeline: Pipeline, *, skipped_options: Collection[str] = ()) -> dict[str, str]:
    """Fields of a form of ``pipeline``, but the ``skipped_options``, by the arguments of the process of a task."""
    left_out = {*_HANDED_ON, *skipped_options}
    return {option.argument: option.in_form for option in _form_options(form, pipeline) if option.name not in left_out}


def asked_in_form(method: str, form: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says of the options that a method of ``PipelineHandle`` takes."""
    return {
        option.name: form[option.in_form]
        for option in options_of_method(method)
        if form.get(option.in_form) is not None
    }


@dataclass(frozen=True)
class _Asking:
    """What the forms of a pipeline depend on."""

    executor: str
    has_names: bool
    outputs: Sequence[str]
    signals: Sequence[str]
    backfill: Backfill | None

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "_Asking":
        outputs, signals = tuple(pipeline.outputs), tuple(pipeline.signals)
        return cls(pipeline.executor, pipeline.has_names, outputs, signals, pipeline.backfill)


def _form_options(form: str, pipeline: Pipeline | _Asking | None) -> Iterator[RunOption]:
    return (option for option in options_of_form(form) if not option.needs or getattr(pipeline, option.needs))


@lru_cache(256)
def _field_schemas(
    form: str, asking: _Asking | None, values: Sequence[tuple[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """What each field is made of; pipelines that ask for the same have the same."""
    defaults = dict(values)
    return {
        option.in_form: _field_schema(option._replace(default=defaults.get(option.name, option.default)), asking)
        for option in _form_options(form, asking)
    }


def _field_schema(option: RunOption, asking: _Asking | None) -> Mapping[str, Any]:
    default = [*option.default] if isinstance(option.default, tuple) else option.default
    schema = {**option.kind.schema, **_choice_schema(option, asking), "title": option.title}
    return {"default": default, "description": _field_description(option, asking), **schema}


def _choice_schema(option: RunOption, asking: _Asking | None) -> dict[str, Any]:
    """What a form offers, or the pattern that it takes."""
    if isinstance(option.kind, BranchOption):
        pattern = f"^{NAME}{END}"
        return {"pattern": pattern} if option.default is None else {"type": "string", "pattern": pattern}
    if isinstance(option.kind, OutputOption) and asking is not None:
        return {"enum": [None, *asking.outputs], "values_display": {"None": "all outputs"}}
    if isinstance(option.kind, ExecutorNameOption) and asking is not None:
        names = EXECUTORS.names()
        display = {
            "None": f"as the pipeline says ({asking.executor})",
            **{name: f"{name}: {EXECUTORS[name].about}" for name in names},
            AUTO: "auto: local while there is little to do, else spark",
        }
        return {"enum": [None, *names, AUTO], "values_display": display}
    return {}


def _field_description(option: RunOption, asking: _Asking | None) -> str:
    description = option.about or option.help
    if asking is None:
        return description
    regular = asking.backfill
    last = "" if regular is None else f"; in a run of the schedule, the last {render_duration(regular.last)}"
    return description.replace("{signals}", ", ".join(asking.signals)).replace("{last}", last)


APPROVE: Final = "approve"
"""The task that asks a person."""

REASON: Final = "reason"
"""The field of a form for it."""

NOT_GIVEN: Final = "no reason given"
"""What the log of a pipeline has instead."""

REASON_WANTED: Final = (
    f"This run gives no reason, and the log of the pipeline has {NOT_GIVEN!r}. From 0.4.0 on its form requires one: "
    f"who decided it, and why (the field {REASON!r})"
)
"""What people are told who gave none: released forms take an empty one, and that stays until then."""

_log = logging.getLogger("airflow.task")
_APPROVAL: Final = ["Approve"]
_CLOCKS_DIFFER: Final = timedelta(hours=1)


class NotApprovedError(FixConfigError, code="config.not_approved"):
    """A run acts only after a person has approved it, and Airflow knows of no such answer."""


class NotRehearsedError(FixConfigError, code="config.not_rehearsed"):
    """A run acts only after its first look has said what changes by it."""


class RehearsalOutdatedError(FixConfigError, code="config.rehearsal_outdated"):
    """What was said to change is no longer so: what it was said of has moved since."""


def reason_field(*, is_required: bool = False) -> Param:
    """The field of each form of a decision. ``is_required``: it cannot be submitted without one."""
    description = "Who decided it and why, for those who read the log of the pipeline later."
    if is_required:
        return Param(type="string", minLength=3, title="Reason", description=description)
    long_description = f"{description} Please give one: a run without one warns, and from 0.4.0 on it is required."
    return Param(None, type=["null", "string"], title="Reason", description=long_description)


def missing_reason_warnings(context: Context) -> list[str]:
    """``REASON_WANTED`` if a person began this run and gave no reason; else nothing. It is for the run's result."""
    return [] if _given_reason(context) or not _is_by_a_person(context) else [REASON_WANTED]


def told_if_unreasoned(context: Context) -> list[str]:
    """The same, said in the task's log as well."""
    missing = missing_reason_warnings(context)
    for warning in missing:
        _log.warning("%s", warning)
    return missing


def reason_of(context: Context) -> str:
    """The reason that the form gives, who triggered the run, and which run it is."""
    stated_reason = _given_reason(context) or (NOT_GIVEN if _is_by_a_person(context) else "")
    user = getattr(context.get("dag_run"), "triggering_user_name", None)
    return " ".join(
        part
        for part in (stated_reason, f"({user}, {_run_place(context)}" if user else f"({_run_place(context)}")
        if part
    )


def decision_message(context: Context, *, asks: bool) -> str:
    """``reason_of``, and who approved it. Raises NotApprovedError if the form ``asks`` a person, and none approved."""
    if not asks:
        return reason_of(context)
    answer = context["ti"].xcom_pull(task_ids=APPROVE) or {}
    if answer.get("chosen_options") != _APPROVAL:
        raise NotApprovedError(
            f"the form says that a person is asked first, and nobody has approved it: clear the task {APPROVE}, which "
            "asks again"
        )
    approver = answer.get("responded_by_user") or {}
    return f"{reason_of(context)}, approved by {approver.get('name') or approver.get('id')}"


def earlier_try(catalog: Catalog, context: Context) -> Entry | None:
    """The entry of the log that an earlier try of a task of this run has left; None if none has."""
    run = context["dag_run"]
    marker, run_begin = _run_place(context), run.run_after - _CLOCKS_DIFFER
    for entry in catalog.entries():
        if datetime.fromisoformat(entry.at) < run_begin:
            return None
        if marker in entry.message:
            return entry
    return None


def earlier_promotion(catalog: Catalog, context: Context, branch: str) -> Entry | None:
    """``earlier_try`` of a run that promotes ``branch``. None too if the branch has begun again since: nobody has
    promoted, or approved, what it holds now.
    """
    entry_before = earlier_try(catalog, context)
    if entry_before is None or branch not in catalog.head().generations:
        return entry_before
    later_entries = takewhile(lambda entry: entry.number >= entry_before.number, catalog.entries())
    return entry_before if all(branch in entry.generations for entry in later_entries) else None


def done_already(entry: Entry) -> str:
    """What a task says that finds what an earlier try has done."""
    return f"done by an earlier try of this run: entry {entry.number} of the log ({entry.message})"


def _given_reason(context: Context) -> str:
    return str(context["params"].get(REASON) or "").strip()


def _is_by_a_person(context: Context) -> bool:
    """Whether this run is none that a schedule began."""
    return getattr(context.get("dag_run"), "run_type", None) != DagRunType.SCHEDULED


def _run_place(context: Context) -> str:
    task = context["ti"]
    return f"in Airflow: {task.dag_id}/{task.run_id})"
