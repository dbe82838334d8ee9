"""What a form says, checked by the first task of a run: when a run is triggered, Airflow checks each field by itself,
takes keys that the form does not have, and knows nothing of how two fields agree.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow.sdk import Context

from headrace.errors import FixConfigError
from headrace.model.suggestions import did_you_mean
from headrace.pipeline.deployment.regular_runs import NEVER
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.option_values import parse_signal, parse_span
from headrace.runs.options import RunOptions
from headrace_airflow.option_fields import END
from headrace_snapshots.refs import MAIN

LENGTH_PATTERN: Final = f"^([0-9.]+ *[A-Za-z]+ *)*{END}"
"""A length of time, as a form takes it."""


class FormError(FixConfigError):
    """The form or configuration of a run says what its DAG cannot do."""

    code = "config.form"


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
