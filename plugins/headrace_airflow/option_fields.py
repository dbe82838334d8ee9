"""The fields of forms that are options of a run, made of their declarations (``headrace.runs.options``), and what a
task hands on of them.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from airflow.sdk import Param

from headrace.model.time import render_duration
from headrace.pipeline.executors import AUTO, EXECUTORS
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.declared_options import options_of_form, options_of_method
from headrace.runs.option_kinds import BranchOption, ExecutorNameOption, OutputOption, RunOption
from headrace_snapshots.refs import NAME

END: Final = r"$(?!\n)"
"""The end of a pattern: ``$`` also matches before a last newline, in Python; browsers do not know ``\\Z``."""

_HANDED_ON: Final = ("branch", "executor")
"""Options that every task hands on, whatever its form says of them."""


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
