"""``headrace check``, and ``hr.check``: what was looked at, what it means, what is wrong with it."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from headrace.connections import MissingConnectionError, connection
from headrace.describe.pipeline import Section, draw_graph, pipeline_notes, pipeline_sections
from headrace.errors import HeadraceError
from headrace.model.arguments import Arguments, Suggesting, check_keywords
from headrace.pipeline.endpoints import OwnFunction
from headrace.pipeline.loading.modules import import_from_package
from headrace.pipeline.loading.registry import (
    RegisteredPipeline,
    UnknownPipelineError,
    in_file,
    registered_files,
    resolve_pipeline,
)
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import AUTO, DAG_FAMILIES, dag_id, retention_dag_id
from headrace.pipeline.validation import UpstreamCycleError, check_beside

_EXECUTOR_WORDS: Final[Mapping[str, str]] = {
    AUTO: "auto: local, or spark where there is much input or state (HEADRACE_AUTO_INPUT, HEADRACE_AUTO_STATE)"
}


@dataclass(frozen=True)
class CheckedPipeline:
    """One pipeline: its meaning, its graph, its DAGs by id with their schedule, problems and notes. ``file`` is None
    for a pipeline that was given itself.
    """

    name: str
    file: Path | None
    description: str
    executor: str
    parts: Sequence[Section]
    graph: Sequence[str]
    dags: Mapping[str, str | None]
    problems: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True, repr=False)
class CheckReport(Suggesting):
    """What was looked at: the pipelines, and why each of the other files cannot be used."""

    pipelines: Sequence[CheckedPipeline]
    broken: Sequence[str] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether a person has to change something."""
        return bool(self.broken) or any(checked_pipeline.problems for checked_pipeline in self.pipelines)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        files = [
            {
                "name": checked_pipeline.name,
                "file": None if checked_pipeline.file is None else str(checked_pipeline.file),
                "description": checked_pipeline.description,
                "executor": checked_pipeline.executor,
                "meaning": {part.heading: list(part.lines) for part in checked_pipeline.parts},
                "graph": list(checked_pipeline.graph),
                "dags": dict(checked_pipeline.dags),
                "problems": list(checked_pipeline.problems),
                "notes": list(checked_pipeline.notes),
            }
            for checked_pipeline in self.pipelines
        ]
        return {"pipelines": files, "broken": list(self.broken)}

    def lines(self) -> Iterator[str]:
        """In words."""
        for checked_pipeline in self.pipelines:
            yield (
                "pipeline "
                f"{checked_pipeline.name}{'' if checked_pipeline.file is None else f' ({checked_pipeline.file})'}"
            )
            if checked_pipeline.description:
                yield f"  {checked_pipeline.description}"
            for part in checked_pipeline.parts:
                yield from _section_lines(part.heading, part.lines)
            yield from _section_lines("graph", checked_pipeline.graph)
            yield from _section_lines(
                "DAGs", [f"{dag}: {schedule or 'started by hand'}" for dag, schedule in checked_pipeline.dags.items()]
            )
            yield from _section_lines(
                "executor", [_EXECUTOR_WORDS.get(checked_pipeline.executor, checked_pipeline.executor)]
            )
            yield from _section_lines("note", checked_pipeline.notes)
            yield from _section_lines("WRONG", checked_pipeline.problems or [])
            yield ""
        yield from _section_lines("WRONG: files that cannot be used", self.broken, indent="")
        wrong = sum(bool(checked_pipeline.problems) for checked_pipeline in self.pipelines) + len(self.broken)
        yield f"{len(self.pipelines)} checked, {wrong or 'nothing'} wrong"

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@check_keywords
def check(pipeline: Pipeline | str | PathLike[str] | None = None) -> CheckReport:
    """Say what a pipeline means, draw its graph, name its DAGs, and tell what is wrong with it. ``str`` gives it in
    words.

    ``pipeline`` is a Pipeline, its file (``path/to/file.py[:name]``) or a registered name; by default all that are
    registered. Raises UnknownPipelineError, PipelineFileError.

    >>> clicks = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime})
    >>> given = clicks.event_time("at", bound="1h")
    >>> sales = hr.Pipeline("sales", given, key="shop", what={"n": hr.count()}, where=hr.FixedWindows("1h"))
    >>> hr.check(sales).is_wrong
    False
    """
    if isinstance(pipeline, Pipeline):
        return CheckReport([check_pipeline(pipeline, environment=os.environ)])
    if pipeline is None:
        registry = registered_files()
        every = [*registry.pipelines.values()]
        return CheckReport(_checked_files(every, every), list(registry.broken.values()))
    if not isinstance(pipeline, str | PathLike) or not isinstance(reference := fspath(pipeline), str):
        raise Arguments("check").refusal("pipeline", pipeline, "give a Pipeline, its file, or a registered name")
    path, _, name = reference.partition(":")
    if path.endswith(".py"):
        file_pipelines = in_file(Path(path))
        chosen_pipelines = [entry for entry in file_pipelines if not name or entry.pipeline.name == name]
        if not chosen_pipelines:
            resolve_pipeline(reference)  # says what the file holds instead
            raise UnknownPipelineError(f"{path} holds no pipeline")
        return CheckReport(_checked_files(chosen_pipelines, file_pipelines))
    resolve_pipeline(reference)
    registry = registered_files()
    checked_pipelines = _checked_files([registry.pipelines[reference]], registry.pipelines.values())
    return CheckReport(checked_pipelines, list(registry.broken.values()))


def _section_lines(heading: str, lines: Sequence[str], indent: str = "  ") -> Iterator[str]:
    if lines:
        yield f"{indent}{heading}"
        yield from (f"{indent}  {line}" for text in lines for line in text.splitlines())


def _checked_files(
    chosen_pipelines: Iterable[RegisteredPipeline], known_pipelines: Iterable[RegisteredPipeline]
) -> list[CheckedPipeline]:
    all_pipelines = [one.pipeline for one in known_pipelines]
    return [
        check_pipeline(one.pipeline, one.file, other_pipelines=all_pipelines, environment=os.environ)
        for one in chosen_pipelines
    ]


def check_pipeline(
    pipeline: Pipeline,
    file: Path | None = None,
    root: str = "",
    other_pipelines: Iterable[Pipeline] = (),
    environment: Mapping[str, str] | None = None,
) -> CheckedPipeline:
    """What there is to say of a pipeline under a ``root`` of that name, where ``other_pipelines`` stand beside it; with
    an ``environment`` also which connections that does not know. One that cannot be described does not keep the
    others from being checked.
    """
    try:
        checked_pipeline = _describe_pipeline(pipeline, file, root, other_pipelines)
        unknown = [] if environment is None else [*_unknown_connections(pipeline, environment)]
        return replace(checked_pipeline, notes=[*checked_pipeline.notes, *unknown])
    except Exception as error:  # objects of a user's own may raise anything when they are asked what they are
        why = f"it cannot be described: {type(error).__name__}: {error}"
        executor = pipeline.executor
        return CheckedPipeline(pipeline.name, file, pipeline.description, executor, [], [], {}, [why], [])


def _describe_pipeline(
    pipeline: Pipeline, file: Path | None, root: str, all_pipelines: Iterable[Pipeline]
) -> CheckedPipeline:
    backfill = None if pipeline.backfill is None else pipeline.backfill.schedule
    has_sinks = any(output_pipeline.sinks for output_pipeline in pipeline.by_output.values())
    regular = {
        "process": pipeline.schedule,
        "backfill": backfill,
        "deliver": _WHENEVER_PUBLISHED if has_sinks else None,
    }
    schedules = {family: str(schedule) for family, schedule in regular.items() if schedule is not None}
    families = [family for family in DAG_FAMILIES.names() if family != "deliver" or has_sinks]
    retention = None if pipeline.retention is None else pipeline.retention.schedule
    of_all = {} if retention is None else {retention_dag_id(retention, root): str(retention)}
    return CheckedPipeline(
        pipeline.name,
        file,
        pipeline.description,
        pipeline.executor,
        pipeline_sections(pipeline),
        draw_graph(pipeline),
        {**{dag_id(pipeline.name, family, root): schedules.get(family) for family in families}, **of_all},
        [*_pipeline_problems(pipeline, all_pipelines)],
        [*pipeline_notes(pipeline)],
    )


def _unknown_connections(pipeline: Pipeline, environment: Mapping[str, str]) -> Iterator[str]:
    """What stands against each connection of sources and sinks; nothing is connected to."""
    users: dict[str, tuple[str, str]] = {}
    for one in pipeline.inputs:
        for name in one.source.connections:
            kind = one.source.kind if name == one.source.connections[0] else "registry"
            users.setdefault(name, (f"input {one.name}" if one.name else "its input", kind))
    for output_pipeline in pipeline.by_output.values():
        for sink in output_pipeline.sinks:
            if sink.connection:
                users.setdefault(sink.connection, (f"sink {sink.name}", sink.kind))
    for name, (user, kind) in users.items():
        try:
            connection(name, environment, kind=kind)
        except MissingConnectionError as error:
            yield f"{user}: {error}"


_WHENEVER_PUBLISHED: Final = "whenever what readers see moves"


def _pipeline_problems(pipeline: Pipeline, all_pipelines: Iterable[Pipeline]) -> Iterator[str]:
    try:
        check_beside(pipeline, all_pipelines)
    except UpstreamCycleError as error:
        yield str(error)
    for function in pipeline.own_functions:
        if problem := _function_problem(function):
            yield f"{function.in_words} cannot be used: {problem}"


def _function_problem(function: OwnFunction) -> str | None:
    module, _, name = function.name.partition(":")
    try:
        attribute = getattr(import_from_package(module, function.package), name, None)
    except HeadraceError as error:
        return str(error)
    except Exception as error:  # a module of the user's own may raise anything
        return f"{type(error).__name__}: {error}"
    return None if callable(attribute) else f"the module has no function {name}"
