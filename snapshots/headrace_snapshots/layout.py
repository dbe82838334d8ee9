"""The names of all objects in the folder of a pipeline, and of its summary beside all others, for writers and for
deletions alike.

An object with another name is not Headrace's: no sweep touches it, and ``fsck`` only names it. So a pattern here never
matches more than what its writer makes.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from headrace_snapshots.refs import NOTHING, SNAPSHOT

RUN_ID = "[A-Za-z0-9][A-Za-z0-9_.-]{0,199}"
"""A regular expression of ids of runs."""

SUMMARIES = ".summaries/"
"""The folder of the summaries of all pipelines; no pipeline has such a name."""

_NUMBER = r"\d{20}"


class ObjectKind(StrEnum):
    """Kinds of objects, by the first name in the folder of a pipeline."""

    LOG = "log"
    HINT = "log-hint.json"
    MANIFESTS = "manifests"
    INDEX = "index"
    DATA = "data"
    AUDITS = "audits"
    RUNS = "runs"
    MARKS = "marks"


_BELOW: Mapping[ObjectKind, str] = {
    ObjectKind.LOG: rf"/{_NUMBER}\.json",
    ObjectKind.HINT: "",
    ObjectKind.MANIFESTS: rf"/{SNAPSHOT}\.json",
    ObjectKind.INDEX: r"/[0-9a-f]{32}\.json",
    ObjectKind.DATA: rf"/\d{{8,}}-{SNAPSHOT}/[a-z][A-Za-z0-9_-]*\.parquet",
    ObjectKind.AUDITS: (
        rf"/(({SNAPSHOT}|{NOTHING})--{SNAPSHOT}/(result\.json|docs/[a-z0-9_-]+\.html)|{SNAPSHOT}/history\.json)"
    ),
    ObjectKind.RUNS: rf"/{RUN_ID}\.json",
    ObjectKind.MARKS: rf"/{_NUMBER}-{SNAPSHOT}\.json",
}
_PATTERNS = {kind: re.compile(f"{re.escape(kind.value)}{below}") for kind, below in _BELOW.items()}


def kind_of(pipeline: str, path: str) -> ObjectKind | None:
    """What ``path`` can name of ``pipeline``; None if Headrace writes nothing under that name."""
    below = path.removeprefix(f"{pipeline}/")
    if below == path:
        return None
    kind = next((kind for kind in ObjectKind if kind.value == below.partition("/")[0]), None)
    return kind if kind is not None and _PATTERNS[kind].fullmatch(below) else None


def folder(pipeline: str, kind: ObjectKind) -> str:
    """Where objects of ``kind`` are, with a slash at its end."""
    return f"{pipeline}/{kind.value}/"


def entry_path(pipeline: str, number: int) -> str:
    """Where entry ``number`` of the log is."""
    return f"{pipeline}/{ObjectKind.LOG}/{number:020d}.json"


def hint_path(pipeline: str) -> str:
    """Where the number of a recent entry is."""
    return f"{pipeline}/{ObjectKind.HINT}"


def manifest_path(pipeline: str, snapshot: str) -> str:
    """Where the manifest of a snapshot is."""
    return f"{pipeline}/{ObjectKind.MANIFESTS}/{snapshot}.json"


def node_path(pipeline: str, node_id: str) -> str:
    """Where a node of a file log is."""
    return f"{pipeline}/{ObjectKind.INDEX}/{node_id}.json"


def data_prefix(pipeline: str, epoch: int, attempt: str) -> str:
    """Where one attempt at one epoch puts its data files; ``attempt`` must be unique, as a snapshot id is."""
    return f"{pipeline}/{ObjectKind.DATA}/{epoch:08d}-{attempt}"


def data_path(pipeline: str, epoch: int, attempt: str, table: str, name: str) -> str:
    """The path of the data file ``name`` of ``table``."""
    return f"{data_prefix(pipeline, epoch, attempt)}/{table}-{name}.parquet"


def audit_folder(pipeline: str, from_snapshot: str | None, to_snapshot: str) -> str:
    """Where the audit of (``from_snapshot``, ``to_snapshot``] is; None: from the beginning."""
    return f"{pipeline}/{ObjectKind.AUDITS}/{from_snapshot or NOTHING}--{to_snapshot}"


def history_path(pipeline: str, snapshot: str) -> str:
    """Where the figures of the versions that lead to ``snapshot`` are, for audits of what follows."""
    return f"{pipeline}/{ObjectKind.AUDITS}/{snapshot}/history.json"


def result_path(pipeline: str, run_id: str) -> str:
    """Where the result of a run is."""
    return f"{pipeline}/{ObjectKind.RUNS}/{run_id}.json"


def summary_path(pipeline: str) -> str:
    """Where the summary of a pipeline is: all of them in one folder, so that one listing tells which have changed."""
    return f"{SUMMARIES}{pipeline}.json"


def summarized(path: str) -> str | None:
    """The pipeline whose summary is at ``path``; None if no summary has that name."""
    name = path.removeprefix(SUMMARIES).removesuffix(".json")
    return name if name.isidentifier() and path == summary_path(name) else None


def mark_path(pipeline: str, mark: str) -> str:
    """Where the mark ``mark`` is, which is called by an entry's number and an id."""
    return f"{pipeline}/{ObjectKind.MARKS}/{mark}.json"


def entry_number(name: str) -> int | None:
    """The number of the entry, or of the mark, whose file has that ``name``; None if it is neither."""
    match = re.fullmatch(rf"({_NUMBER})(-{SNAPSHOT})?\.json", name)
    return None if match is None else int(match[1])
