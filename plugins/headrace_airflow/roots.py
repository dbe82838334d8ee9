"""The roots that Airflow serves, and their pipelines: where their data is, and what names them in Airflow.

Served are the root that the environment declares, and those of the file that HEADRACE_ROOTS names. The file is TOML,
not Python: the API server reads it, too, and runs no code of users. A root that cannot be used takes nothing away from
the others. What a deployment sets for all of them are environment variables of the Airflow processes; storage keys
(``AWS_*``) are not here: the Spark application inherits them, and nothing renders them.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.errors import FixConfigError
from headrace.ext.stores import SCHEMES, shown
from headrace.model.arguments import did_you_mean
from headrace.pipeline.loading import registry
from headrace.pipeline.loading.registry import find_registered
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import dag_id
from headrace.this_process import size_in
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

SPARK_CONNECTION: Final = "HEADRACE_SPARK_CONN"
API_CONNECTION: Final = "HEADRACE_API_CONN"
DRIVER_MEMORY: Final = "HEADRACE_DRIVER_MEMORY"
LOCAL_MEMORY: Final = "HEADRACE_LOCAL_MEMORY"
ALLOWED_HOSTS: Final = "HEADRACE_ALLOWED_HOSTS"
_LOCAL_MEMORY: Final = 4 * 2**30


def spark_connection() -> str:
    """Id of the Airflow connection that says where Spark is."""
    return os.environ.get(SPARK_CONNECTION, "spark_default")


def api_connection() -> str:
    """Id of the Airflow connection with which tasks ask Airflow's own REST API about pools."""
    return os.environ.get(API_CONNECTION, "headrace_api")


def driver_memory() -> str:
    """Memory of the driver's JVM; in local mode the executor's too."""
    return os.environ.get(DRIVER_MEMORY, "2g")


def local_memory() -> int:
    """Bytes of memory that a run without Spark may take. Raises SizeError."""
    setting = size_in(LOCAL_MEMORY)
    return _LOCAL_MEMORY if setting is None else setting


def allowed_hosts() -> list[str]:
    """The names under which Airflow's API server may be called; none: any."""
    return [name for name in os.environ.get(ALLOWED_HOSTS, "").split(",") if name]


ROOT: Final = "HEADRACE_ROOT"
STORE_CONNECTION: Final = "HEADRACE_STORE_CONN"


class DeploymentError(FixConfigError, code="config.environment"):
    """An environment variable that Headrace needs is missing where the task runs."""


@dataclass(frozen=True)
class Root:
    """A root that Airflow serves: the URI where its data is, and the folders with its pipelines' files. ``store`` is
    the id of the Airflow connection that says how its store is reached (empty: the environment says it).

    ``endpoint`` is the address of the store's service, and ``defaults`` a file with the options of its DAGs; either is
    empty if nobody has said so for this root. The root that the environment declares has no ``name``, and nothing in
    Airflow is named after it.
    """

    name: str
    location: str
    folders: registry.PipelineFolders
    store: str = ""
    endpoint: str = ""
    defaults: str = ""

    @classmethod
    def of_environment(cls) -> "Root":
        """The root that environment variables declare."""
        return cls(
            "",
            os.environ.get(ROOT, ""),
            registry.PipelineFolders.of_environment(),
            os.environ.get(STORE_CONNECTION, ""),
        )

    @property
    def uri(self) -> str:
        """The URI of the root. Raises DeploymentError."""
        if self.location:
            return self.location
        raise DeploymentError(
            f"{ROOT} is not set where this task runs; set it for every Airflow process to the URI of the root, "
            "file:///some/folder or s3://bucket/prefix"
        )

    @property
    def tags(self) -> tuple[str, ...]:
        """By what its DAGs are found in Airflow's list."""
        return (self.name,) if self.name else ()

    def qualified_name(self, name: str) -> str:
        """``name`` of this root, told apart from that of others."""
        return f"{self.name}.{name}" if self.name else name

    def airflow_name(self, name: str) -> str:
        """What Airflow calls the ``name`` of this root, be it a pipeline's pool or the DAG of a decision."""
        return f"headrace_{self.qualified_name(name)}"

    def registered_files(self, is_wanted: Callable[[str], bool] | None = None) -> registry.RegisteredFiles:
        """The pipelines that can be loaded, and what is wrong with other files. ``is_wanted``: only pipelines whose
        qualified names it takes. Raises ImportLimitError.
        """
        if is_wanted is None:
            return registry.registered_files(self.folders)
        return registry.registered_files(self.folders, lambda name: is_wanted(self.qualified_name(name)))

    def pipeline(self, name: str) -> "RootedPipeline":
        """The pipeline of that name. Raises UnknownPipelineError, ImportLimitError."""
        return RootedPipeline(self, find_registered(name, self.folders))

    def rooted_pipelines(self, files: registry.RegisteredFiles) -> "list[RootedPipeline]":
        """The pipelines of ``files``, which are this root's."""
        return [RootedPipeline(self, one) for one in files.pipelines.values()]


@dataclass(frozen=True)
class RootedPipeline:
    """A registered pipeline at the root where its data is."""

    root: Root
    registered: registry.RegisteredPipeline

    @property
    def pipeline(self) -> Pipeline:
        """Its definition."""
        return self.registered.pipeline

    @property
    def name(self) -> str:
        """Its name, which another root's pipeline may have, too."""
        return self.registered.pipeline.name

    @property
    def qualified(self) -> str:
        """Its name as people read it beside those of other roots."""
        return self.root.qualified_name(self.name)

    @property
    def file(self) -> Path:
        """The file that defines it."""
        return self.registered.file

    @property
    def reference(self) -> str:
        """``FILE:NAME``, as the command line and submit.py take it."""
        return self.registered.reference

    @property
    def pool(self) -> str:
        """The pool whose one slot every task holds that writes its state."""
        return self.root.airflow_name(self.name)

    def dag_id(self, family: str) -> str:
        """Name its DAG of a family. It raises nothing.

        :param family: the family's name.
        :returns: what Airflow calls that DAG.
        """
        return dag_id(self.name, family, self.root.name)

    def catalog(self) -> Catalog:
        """Open its catalog, which makes no request.

        :returns: branches, tags and snapshots of the pipeline.
        :raises DeploymentError: the environment does not say where the root is.
        """
        return Catalog(open_store(self.root.uri), self.name)


_ROOT_TABLE: Final = "root"
_ROOT_NAME: Final = re.compile("[a-z][a-z0-9_]{0,30}")
_TEXT_KEYS: Final = ("name", "uri", "store", "endpoint", "airflow")
_ALL_KEYS: Final = (*_TEXT_KEYS, "pipelines")


class RootsFileError(FixConfigError, code="config.roots"):
    """The file that declares roots cannot be used, or one of its roots."""


def declared_in(file: Path) -> Iterator[Root | RootsFileError]:
    """Each root of ``file``, or what is wrong with it. Raises RootsFileError for a file that cannot be read."""
    import tomllib  # most deployments declare none

    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RootsFileError(f"{file} declares roots and cannot be read: {reason}") from error
    if unknown := [name for name in tables if name != _ROOT_TABLE]:
        raise RootsFileError(
            f"{file}: {unknown[0]} is nothing that Headrace knows: begin each root with [[{_ROOT_TABLE}]]"
        )
    entries = tables.get(_ROOT_TABLE, [])
    if not isinstance(entries, list):
        raise RootsFileError(f"{file}: begin each root with [[{_ROOT_TABLE}]], in two brackets")
    for number, entry in enumerate(entries, 1):
        try:
            yield _parse_root(entry, f"{file}: root {number}", file)
        except RootsFileError as error:
            yield error


def _parse_root(entry: Mapping[str, Any], where: str, file: Path) -> Root:
    for key, value in entry.items():
        if key not in _ALL_KEYS:
            raise RootsFileError(
                f"{where} has {key!r}, which Headrace does not know; {did_you_mean(key, _ALL_KEYS)}it takes "
                f"{', '.join(_ALL_KEYS)}"
            )
        if key in _TEXT_KEYS and not (isinstance(value, str) and value):
            raise RootsFileError(f"{where}: {key} is no text: write it in quotes, or leave it out")
    name, uri, folders = entry.get("name", ""), entry.get("uri", ""), entry.get("pipelines")
    if not _ROOT_NAME.fullmatch(name):
        raise RootsFileError(
            f"{where} has the name {name!r}: write lower case letters, digits and _, at most 31, starting with a letter"
        )
    where = f"{where} ({name})"
    if "://" not in uri or uri.partition("://")[0] not in SCHEMES:
        forms = " or ".join(SCHEMES[scheme].form for scheme in SCHEMES.built_in if SCHEMES[scheme].is_shared)
        raise RootsFileError(f"{where} has the uri {shown(uri)!r}: write {forms}")
    if not (isinstance(folders, list) and folders and all(isinstance(one, str) and one for one in folders)):
        raise RootsFileError(f'{where}: pipelines names no folders: write pipelines = ["sales"]')
    file_folder = file.absolute().parent
    defaults = str(file_folder / entry["airflow"]) if "airflow" in entry else ""
    folders_searched = registry.PipelineFolders(tuple(file_folder / folder for folder in folders), where)
    endpoint = entry.get("endpoint", "").rstrip("/")
    return Root(name, uri, folders_searched, entry.get("store", ""), endpoint, defaults)


ROOTS: Final = "HEADRACE_ROOTS"


class UnknownRootError(FixConfigError, code="config.unknown_root"):
    """A DAG belongs to a root that this Airflow does not serve."""


@dataclass(frozen=True)
class ServedRoots:
    """The roots that can be used, and what is wrong with others."""

    roots: Sequence[Root]
    problems: Sequence[str] = ()

    def root_named(self, name: str) -> Root:
        """The root of that name. Raises UnknownRootError."""
        for root in self.roots:
            if root.name == name:
                return root
        problems = "".join(f"\n{problem}" for problem in self.problems)
        raise UnknownRootError(
            f"this Airflow serves no root {name!r}: declare it in the file that {ROOTS} names{problems}"
            if name
            else f"this Airflow serves no root without a name: set HEADRACE_ROOT for every Airflow process{problems}"
        )


def served_roots() -> ServedRoots:
    """The roots as they are declared now; the environment's counts beside a file's if it has a URI."""
    own, setting = Root.of_environment(), os.environ.get(ROOTS)
    if not setting:
        return ServedRoots((own,))
    file = Path(setting)
    try:
        status = file.stat()
        declared_roots = _declared_roots(file, status.st_mtime_ns, status.st_size)
    except OSError as error:
        declared_roots = (RootsFileError(f"{ROOTS} names {file}, which cannot be read: {error.strerror}"),)
    return _compatible_roots([own] if own.location else [], declared_roots)


@lru_cache(1)
def _declared_roots(file: Path, changed_at: int, size: int) -> tuple[Root | RootsFileError, ...]:
    """What the file declares; read once as long as it is the same file."""
    try:
        return tuple(declared_in(file))
    except RootsFileError as error:
        return (error,)


def _compatible_roots(roots: list[Root], declared_roots: Iterable[Root | RootsFileError]) -> ServedRoots:
    """The roots that go together: of two that do not, the first counts."""
    problems: list[str] = []
    for one in declared_roots:
        problem = str(one) if isinstance(one, RootsFileError) else next(_root_conflicts(one, roots), None)
        if problem is not None:
            problems.append(problem)
        elif isinstance(one, Root):
            roots.append(one)
    return ServedRoots(
        tuple(_exclude_other_folders(root, place, roots) for place, root in enumerate(roots)), tuple(problems)
    )


def _root_conflicts(root: Root, others: Iterable[Root]) -> Iterator[str]:
    for other in others:
        if root.name == other.name:
            yield f"{root.folders.named_by}: there are two of that name; this Airflow serves {shown(other.location)}"
        if _roots_overlap(root, other):
            whose = f"of root {other.name}" if other.name else "in HEADRACE_ROOT"
            yield (
                f"{root.folders.named_by}: {shown(root.location)} and {shown(other.location)} {whose} are not apart: "
                "neither may lie in the other. If they are in different services, give the endpoint of each"
            )


def _roots_overlap(root: Root, other: Root) -> bool:
    if root.endpoint and other.endpoint and root.endpoint != other.endpoint:
        return False
    (scheme, own_path), (other_scheme, other_path) = place_of(root.location), place_of(other.location)
    return scheme == other_scheme and (own_path.is_relative_to(other_path) or other_path.is_relative_to(own_path))


def place_of(uri: str) -> tuple[str, PurePosixPath]:
    """Where a root is: the scheme, and the path in a service of it."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "file", PurePosixPath(Path(unquote(parts.path)).resolve())
    return parts.scheme, PurePosixPath(f"{parts.netloc}/{parts.path}")


def _exclude_other_folders(root: Root, place: int, roots: Sequence[Root]) -> Root:
    """``root`` without the pipelines of other ``roots``; a folder that two name belongs to the first."""
    own = {folder.resolve() for folder in root.folders.folders}
    earlier = [folder for other in roots[:place] for folder in other.folders.folders]
    later_folders = [
        folder for other in roots[place + 1 :] for folder in other.folders.folders if folder.resolve() not in own
    ]
    return replace(root, folders=replace(root.folders, others=(*earlier, *later_folders)))
