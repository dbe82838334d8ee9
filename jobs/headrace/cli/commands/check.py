"""``headrace check``: what was looked at, what it means, what is wrong with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.describe.pipeline import Section, describe, graph, notes
from headrace.errors import HeadraceError
from headrace.pipeline.loading.folders import imported
from headrace.pipeline.loading.registry import Registered, UnknownPipelineError, in_file, registered_files, resolve
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.schedules import FAMILIES, dag_id
from headrace.pipeline.sources import SparkFunction


@dataclass(frozen=True)
class CheckedPipeline:
    """One pipeline: its meaning, its graph, its DAGs by id with their schedule, problems and notes."""

    name: str
    file: Path
    description: str
    executor: str
    parts: Sequence[Section]
    graph: Sequence[str]
    dags: Mapping[str, str | None]
    problems: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True)
class CheckReport:
    """What was looked at: the pipelines, and why each of the other files cannot be used."""

    pipelines: Sequence[CheckedPipeline]
    broken: Sequence[str] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether a person has to change something."""
        return bool(self.broken) or any(each.problems for each in self.pipelines)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        found = [
            {
                "name": each.name,
                "file": str(each.file),
                "description": each.description,
                "executor": each.executor,
                "meaning": {part.heading: list(part.lines) for part in each.parts},
                "graph": list(each.graph),
                "dags": dict(each.dags),
                "problems": list(each.problems),
                "notes": list(each.notes),
            }
            for each in self.pipelines
        ]
        return {"pipelines": found, "broken": list(self.broken)}


def checked(reference: str | None) -> CheckReport:
    """What ``reference`` names, or all that is registered. Raises UnknownPipelineError, PipelineFileError."""
    path, _, name = (reference or "").partition(":")
    if path.endswith(".py"):
        found = [each for each in in_file(Path(path)) if not name or each.pipeline.name == name]
        if not found:
            resolve(reference or "")  # says what the file holds instead
            raise UnknownPipelineError(f"{path} holds no pipeline")
        return CheckReport([_checked(each) for each in found])
    registered = registered_files()
    broken = list(registered.broken.values())
    if reference is None:
        return CheckReport([_checked(each) for each in registered.pipelines.values()], broken)
    resolve(reference)
    return CheckReport([_checked(registered.pipelines[reference])], broken)


def shown(found: CheckReport) -> Iterator[str]:
    """For people."""
    for each in found.pipelines:
        yield f"pipeline {each.name} ({each.file})"
        if each.description:
            yield f"  {each.description}"
        for part in each.parts:
            yield from _section(part.heading, part.lines)
        yield from _section("graph", each.graph)
        yield from _section("DAGs", [f"{dag}: {schedule or 'started by hand'}" for dag, schedule in each.dags.items()])
        yield from _section("executor", [each.executor])
        yield from _section("note", each.notes)
        yield from _section("WRONG", each.problems or [])
        yield ""
    yield from _section("WRONG: files that cannot be used", found.broken, indent="")
    wrong = sum(bool(each.problems) for each in found.pipelines) + len(found.broken)
    yield f"{len(found.pipelines)} checked, {wrong or 'nothing'} wrong"


def _section(heading: str, lines: Sequence[str], indent: str = "  ") -> Iterator[str]:
    if lines:
        yield f"{indent}{heading}"
        yield from (f"{indent}  {line}" for text in lines for line in text.splitlines())


def _checked(registered: Registered) -> CheckedPipeline:
    """What there is to say of a pipeline. One that cannot be described does not keep the others from being checked."""
    pipeline = registered.pipeline
    try:
        return _described(registered)
    except Exception as error:  # objects of a user's own may raise anything when they are asked what they are
        why = f"it cannot be described: {type(error).__name__}: {error}"
        executor = str(pipeline.executor)
        return CheckedPipeline(pipeline.name, registered.file, pipeline.description, executor, [], [], {}, [why], [])


def _described(registered: Registered) -> CheckedPipeline:
    pipeline = registered.pipeline
    anew = None if pipeline.backfill is None else pipeline.backfill.schedule
    upkeep = None if pipeline.retention is None else pipeline.retention.schedule
    schedules = {"process": pipeline.schedule, "backfill": anew, "expire": upkeep}
    return CheckedPipeline(
        pipeline.name,
        registered.file,
        pipeline.description,
        str(pipeline.executor),
        describe(pipeline),
        graph(pipeline),
        {dag_id(pipeline.name, family): schedules.get(family) for family in FAMILIES},
        [*_problems(pipeline)],
        [*notes(pipeline)],
    )


def _problems(pipeline: Pipeline) -> Iterator[str]:
    for function in pipeline.spark_functions:
        if problem := _problem(function):
            yield f"Spark code {function.name} cannot be used: {problem}"


def _problem(function: SparkFunction) -> str | None:
    module, _, name = function.name.partition(":")
    try:
        found = getattr(imported(module, function.package), name, None)
    except HeadraceError as error:
        return str(error)
    except Exception as error:  # a module of the user's own may raise anything
        return f"{type(error).__name__}: {error}"
    return None if callable(found) else f"the module has no function {name}"
