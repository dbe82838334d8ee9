"""The deployment under a root, for Python: its pipelines by name."""

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.pipeline import Pipeline
from headrace.read.deployment import Deployment
from headrace.read.roots import check_root
from headrace.runs.client.handle import PipelineHandle
from headrace_snapshots.store import ObjectStore, open_store


@keywords
def open(root: str, *, create: bool = False) -> "OpenDeployment":  # noqa: A001 (read as hr.open)
    """The pipelines under ``root``: ``file:///folder`` or ``s3://bucket/prefix``. A root that does not exist is an
    error, unless a run is to ``create`` it.

    Raises MissingRootError when there is no such root, FixConfigError for a URI that cannot be one.

    >>> list(hr.open(root))
    []
    """
    arguments = Arguments("open")
    store = open_store(arguments.text("root", root, "file:///data/headrace"))
    if not arguments.flag("create", create):
        check_root(store)
    return OpenDeployment(store, create=create)


class OpenDeployment(Deployment):
    """The pipelines under a root, by name or by their definition. What there is is looked up each time."""

    def __init__(self, store: ObjectStore, *, create: bool = False) -> None:
        """``create``: runs make a root that does not exist, even if there is no input."""
        super().__init__(store)
        self._create = create

    def __getitem__(self, name: str | Pipeline) -> PipelineHandle:
        """The results of pipeline ``name``. Raises UnknownResultsError for a name without any."""
        return PipelineHandle(*self._found(name), create=self._create)
