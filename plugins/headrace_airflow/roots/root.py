"""The roots that Airflow serves, and their pipelines: where their data is, and what names them in Airflow."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.errors import FixConfigError
from headrace.pipeline.loading.registry import (
    PipelineFolders,
    Registered,
    RegisteredFiles,
    registered,
    registered_files,
)
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.schedules import dag_id
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

ROOT: Final = "HEADRACE_ROOT"
STORE_CONNECTION: Final = "HEADRACE_STORE_CONN"


class DeploymentError(FixConfigError, code="config.environment"):
    """An environment variable that Headrace needs is missing where the task runs."""


@dataclass(frozen=True)
class Root:
    """A root that Airflow serves: the URI where its data is, the folders with its pipelines' files, and the id of the
    Airflow connection that says how its store is reached (empty: the environment says it).

    ``endpoint`` is the address of the store's service, and ``defaults`` a file with the options of its DAGs; either is
    empty if nobody has said so for this root. The root that the environment declares has no ``name``, and nothing in
    Airflow is named after it.
    """

    name: str
    location: str
    folders: PipelineFolders
    store: str = ""
    endpoint: str = ""
    defaults: str = ""

    @classmethod
    def of_environment(cls) -> "Root":
        """The root that environment variables declare."""
        return cls("", os.environ.get(ROOT, ""), PipelineFolders.of_environment(), os.environ.get(STORE_CONNECTION, ""))

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

    def qualified(self, name: str) -> str:
        """``name`` of this root, told apart from that of others."""
        return f"{self.name}.{name}" if self.name else name

    def named(self, name: str) -> str:
        """What Airflow calls the ``name`` of this root, be it a pipeline's pool or the DAG of a decision."""
        return f"headrace_{self.qualified(name)}"

    def files(self) -> RegisteredFiles:
        """The pipelines that can be loaded, and what is wrong with other files. Raises ImportLimitError."""
        return registered_files(self.folders)

    def pipeline(self, name: str) -> "RootedPipeline":
        """The pipeline of that name. Raises UnknownPipelineError, ImportLimitError."""
        return RootedPipeline(self, registered(name, self.folders))

    def rooted(self, files: RegisteredFiles) -> "list[RootedPipeline]":
        """The pipelines of ``files``, which are this root's."""
        return [RootedPipeline(self, one) for one in files.pipelines.values()]


@dataclass(frozen=True)
class RootedPipeline:
    """A registered pipeline at the root where its data is."""

    root: Root
    registered: Registered

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
        return self.root.qualified(self.name)

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
        return self.root.named(self.name)

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
