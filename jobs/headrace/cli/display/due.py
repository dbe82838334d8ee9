"""What a command that moves what readers see leaves to do: the delivery to sinks. It imports little."""

from typing import TYPE_CHECKING

from headrace.cli.display.output import Format, notice
from headrace.errors import HeadraceError
from headrace.runs.reporting.listener import Where

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle


def say_what_is_due(handle: "PipelineHandle", reference: str, root: str, output: Format) -> None:
    """Sinks hold what readers saw until somebody delivers; a DAG does so where there is Airflow."""
    try:
        definition = handle.definition()
    except HeadraceError:  # its file is broken, which is nothing to what was done
        return
    outputs = {} if definition is None else definition.by_output
    sinks = [sink.name for alone in outputs.values() for sink in alone.sinks]
    if sinks and output is not Format.JSON:
        named = f"sink {sinks[0]}" if len(sinks) == 1 else f"{len(sinks)} sinks"
        notice(f"to bring {named} to what readers see: {Where(reference, root).command('deliver')}")
