"""``headrace check``, and ``hr.check``: what was looked at, what it means, what is wrong with it."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from headrace.connections import MissingConnectionError, connection
from headrace.describe.pipeline import Section, describe, graph, notes
from headrace.errors import HeadraceError
from headrace.model.arguments import Arguments, Suggesting, keywords
from headrace.pipeline.endpoints import OwnFunction
from headrace.pipeline.loading.modules import imported
from headrace.pipeline.loading.registry import Registered, UnknownPipelineError, in_file, registered_files, resolve
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
        return bool(self.broken) or any(checked.problems for checked in self.pipelines)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        files = [
            {
                "name": checked.name,
                "file": None if checked.file is None else str(checked.file),
                "description": checked.description,
                "executor": checked.executor,
                "meaning": {part.heading: list(part.lines) for part in checked.parts},
                "graph": list(checked.graph),
                "dags": dict(checked.dags),
                "problems": list(checked.problems),
                "notes": list(checked.notes),
            }
            for checked in self.pipelines
        ]
        return {"pipelines": files, "broken": list(self.broken)}

    def lines(self) -> Iterator[str]:
        """In words."""
        for checked in self.pipelines:
            yield f"pipeline {checked.name}{'' if checked.file is None else f' ({checked.file})'}"
            if checked.description:
                yield f"  {checked.description}"
            for part in checked.parts:
                yield from _section(part.heading, part.lines)
            yield from _section("graph", checked.graph)
            yield from _section(
                "DAGs", [f"{dag}: {schedule or 'started by hand'}" for dag, schedule in checked.dags.items()]
            )
            yield from _section("executor", [_EXECUTOR_WORDS.get(checked.executor, checked.executor)])
            yield from _section("note", checked.notes)
            yield from _section("WRONG", checked.problems or [])
            yield ""
        yield from _section("WRONG: files that cannot be used", self.broken, indent="")
        wrong = sum(bool(checked.problems) for checked in self.pipelines) + len(self.broken)
        yield f"{len(self.pipelines)} checked, {wrong or 'nothing'} wrong"

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@keywords
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
        return CheckReport([checked(pipeline, environment=os.environ)])
    if pipeline is None:
        registered = registered_files()
        every = [*registered.pipelines.values()]
        return CheckReport(_checked_files(every, every), list(registered.broken.values()))
    if not isinstance(pipeline, str | PathLike) or not isinstance(reference := fspath(pipeline), str):
        raise Arguments("check").wrong("pipeline", pipeline, "give a Pipeline, its file, or a registered name")
    path, _, name = reference.partition(":")
    if path.endswith(".py"):
        defined = in_file(Path(path))
        chosen = [loaded for loaded in defined if not name or loaded.pipeline.name == name]
        if not chosen:
            resolve(reference)  # says what the file holds instead
            raise UnknownPipelineError(f"{path} holds no pipeline")
        return CheckReport(_checked_files(chosen, defined))
    resolve(reference)
    registered = registered_files()
    named = _checked_files([registered.pipelines[reference]], registered.pipelines.values())
    return CheckReport(named, list(registered.broken.values()))


def _section(heading: str, lines: Sequence[str], indent: str = "  ") -> Iterator[str]:
    if lines:
        yield f"{indent}{heading}"
        yield from (f"{indent}  {line}" for text in lines for line in text.splitlines())


def _checked_files(chosen: Iterable[Registered], known: Iterable[Registered]) -> list[CheckedPipeline]:
    beside = [one.pipeline for one in known]
    return [checked(one.pipeline, one.file, beside=beside, environment=os.environ) for one in chosen]


def checked(
    pipeline: Pipeline,
    file: Path | None = None,
    root: str = "",
    beside: Iterable[Pipeline] = (),
    environment: Mapping[str, str] | None = None,
) -> CheckedPipeline:
    """What there is to say of a pipeline under a ``root`` of that name, where those ``beside`` it are known; with an
    ``environment`` also which connections that does not know. One that cannot be described does not keep the others
    from being checked.
    """
    try:
        described = _described(pipeline, file, root, beside)
        unknown = [] if environment is None else [*_unknown_connections(pipeline, environment)]
        return replace(described, notes=[*described.notes, *unknown])
    except Exception as error:  # objects of a user's own may raise anything when they are asked what they are
        why = f"it cannot be described: {type(error).__name__}: {error}"
        executor = pipeline.executor
        return CheckedPipeline(pipeline.name, file, pipeline.description, executor, [], [], {}, [why], [])


def _described(pipeline: Pipeline, file: Path | None, root: str, beside: Iterable[Pipeline]) -> CheckedPipeline:
    backfill = None if pipeline.backfill is None else pipeline.backfill.schedule
    has_sinks = any(alone.sinks for alone in pipeline.by_output.values())
    regular = {"process": pipeline.schedule, "backfill": backfill, "deliver": _MOVED if has_sinks else None}
    schedules = {family: str(schedule) for family, schedule in regular.items() if schedule is not None}
    families = [family for family in DAG_FAMILIES.names() if family != "deliver" or has_sinks]
    retention = None if pipeline.retention is None else pipeline.retention.schedule
    of_all = {} if retention is None else {retention_dag_id(retention, root): str(retention)}
    return CheckedPipeline(
        pipeline.name,
        file,
        pipeline.description,
        pipeline.executor,
        describe(pipeline),
        graph(pipeline),
        {**{dag_id(pipeline.name, family, root): schedules.get(family) for family in families}, **of_all},
        [*_problems(pipeline, beside)],
        [*notes(pipeline)],
    )


def _unknown_connections(pipeline: Pipeline, environment: Mapping[str, str]) -> Iterator[str]:
    """What stands against each connection of sources and sinks; nothing is connected to."""
    users: dict[str, tuple[str, str]] = {}
    for one in pipeline.inputs:
        for name in one.source.connections:
            kind = one.source.kind if name == one.source.connections[0] else "registry"
            users.setdefault(name, (f"input {one.name}" if one.name else "its input", kind))
    for alone in pipeline.by_output.values():
        for sink in alone.sinks:
            if sink.connection:
                users.setdefault(sink.connection, (f"sink {sink.name}", sink.kind))
    for name, (user, kind) in users.items():
        try:
            connection(name, environment, kind=kind)
        except MissingConnectionError as error:
            yield f"{user}: {error}"


_MOVED: Final = "whenever what readers see moves"


def _problems(pipeline: Pipeline, beside: Iterable[Pipeline]) -> Iterator[str]:
    try:
        check_beside(pipeline, beside)
    except UpstreamCycleError as error:
        yield str(error)
    for function in pipeline.own_functions:
        if problem := _problem(function):
            yield f"{function.in_words} cannot be used: {problem}"


def _problem(function: OwnFunction) -> str | None:
    module, _, name = function.name.partition(":")
    try:
        attribute = getattr(imported(module, function.package), name, None)
    except HeadraceError as error:
        return str(error)
    except Exception as error:  # a module of the user's own may raise anything
        return f"{type(error).__name__}: {error}"
    return None if callable(attribute) else f"the module has no function {name}"
