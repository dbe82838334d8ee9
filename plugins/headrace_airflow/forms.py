"""The fields of forms that are options of a run, made of their declarations (``headrace.runs.options``), and a check of
what forms say, which the first task of a run makes.

When a run is triggered, Airflow checks each field by itself, takes keys that the form does not have, and knows nothing
of how two fields agree.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow.sdk import Context, Param

from headrace.errors import FixConfigError
from headrace.ext.executors import EXECUTORS
from headrace.model.arguments import did_you_mean
from headrace.model.time import render_duration
from headrace.pipeline.deployment import NEVER
from headrace.pipeline.executors import AUTO
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.option_kinds import BranchOption, ExecutorNameOption, OutputOption, RunOption
from headrace.runs.option_values import parse_signal, parse_span
from headrace.runs.options import RunOptions, options_of_form, options_of_method
from headrace_snapshots.refs import MAIN, NAME

END: Final = r"$(?!\n)"
"""The end of a pattern: ``$`` also matches before a last newline, in Python; browsers do not know ``\\Z``."""

LENGTH_PATTERN: Final = f"^([0-9.]+ *[A-Za-z]+ *)*{END}"
"""A length of time, as a form takes it."""


_HANDED_ON: Final = ("branch", "executor")
"""Options that every task hands on, whatever its form says of them."""


class FormError(FixConfigError, code="config.form"):
    """The form or configuration of a run says what its DAG cannot do."""


@dataclass(frozen=True)
class Form:
    """The form of a DAG of ``pipeline``: ``names`` are its fields."""

    pipeline: Pipeline
    names: Collection[str]

    def check(self, context: Context) -> None:
        """Raise FormError if something is wrong with the form of this run, before anything is done."""
        check_names(context, self.names)
        try:
            self._check_values(context.get("params") or {})
        except FormError:
            raise
        except FixConfigError as error:
            raise FormError(str(error)) from error

    def _check_values(self, values: Mapping[str, Any]) -> None:
        signals = tuple(map(parse_signal, values.get("signals") or ()))
        RunOptions(run_id="form", branch=values.get("branch") or MAIN, signals=signals)
        parse_span(values.get("from") or None, values.get("to") or None)
        if values.get("patch") and values.get("promote") == NEVER:
            raise FormError("a patch is a way to promote, and the form says never to promote: choose one of them")
        self._check_output(values)
        if unknown := {signal.name for signal in signals} - set(self.pipeline.signals):
            raise FormError(
                f"nothing in {self.pipeline.name} waits for a signal {min(unknown)!r}; it waits for: "
                f"{', '.join(self.pipeline.signals) or 'none'}"
            )

    def _check_output(self, values: Mapping[str, Any]) -> None:
        """Raise FormError for a backfill of one output that names a range, or a patch of all."""
        output, is_patch = values.get("output"), values.get("patch")
        if is_patch and not output and self.pipeline.has_names:
            raise FormError(f"a patch is of one output: choose one of {', '.join(self.pipeline.outputs)}")
        given = [name for name in ("from", "to", "files_per_epoch", "bytes_per_epoch") if values.get(name)]
        if output and not is_patch and given:
            raise FormError(
                f"output {output} is computed again in the epochs that main recorded, all of them: leave out "
                f"{', '.join(given)}; or choose no output, or a patch"
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
    return {
        option.in_form: _param(option._replace(default=values.get(option.name, option.default)), pipeline)
        for option in _options(form, pipeline)
    }


def option_flags(form: str, pipeline: Pipeline, *, without: Collection[str] = ()) -> dict[str, str]:
    """Fields of a form of ``pipeline`` by the arguments of the process that a task runs; ``without`` those options."""
    left_out = {*_HANDED_ON, *without}
    return {option.argument: option.in_form for option in _options(form, pipeline) if option.name not in left_out}


def asked_in_form(method: str, form: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says of the options that a method of ``PipelineHandle`` takes."""
    return {
        option.name: form[option.in_form]
        for option in options_of_method(method)
        if form.get(option.in_form) is not None
    }


def _options(form: str, pipeline: Pipeline | None) -> Iterator[RunOption]:
    return (option for option in options_of_form(form) if not option.needs or getattr(pipeline, option.needs))


def _param(option: RunOption, pipeline: Pipeline | None) -> Param:
    default = [*option.default] if isinstance(option.default, tuple) else option.default
    schema = {**option.kind.schema, **_choice(option, pipeline), "title": option.title}
    return Param(default, description=_about(option, pipeline), **schema)


def _choice(option: RunOption, pipeline: Pipeline | None) -> dict[str, Any]:
    """What a form offers, or the pattern that it takes."""
    if isinstance(option.kind, BranchOption):
        pattern = f"^{NAME}{END}"
        return {"pattern": pattern} if option.default is None else {"type": "string", "pattern": pattern}
    if isinstance(option.kind, OutputOption) and pipeline is not None:
        return {"enum": [None, *pipeline.outputs], "values_display": {"None": "all outputs"}}
    if isinstance(option.kind, ExecutorNameOption) and pipeline is not None:
        names = EXECUTORS.names()
        display = {
            "None": f"as the pipeline says ({pipeline.executor})",
            **{name: f"{name}: {EXECUTORS[name].about}" for name in names},
            AUTO: "auto: local while there is little to do, else spark",
        }
        return {"enum": [None, *names, AUTO], "values_display": display}
    return {}


def _about(option: RunOption, pipeline: Pipeline | None) -> str:
    about = option.about or option.help
    if pipeline is None:
        return about
    regular = pipeline.backfill
    last = "" if regular is None else f"; in a run of the schedule, the last {render_duration(regular.last)}"
    return about.replace("{signals}", ", ".join(pipeline.signals)).replace("{last}", last)
