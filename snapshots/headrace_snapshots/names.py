"""Names: which text can be a branch, a tag or a snapshot, and how objects in the folder of a pipeline are called.

``kind_of_name`` has the grammar: a text names a branch, a tag, the id of a snapshot, a time, or the beginning. It is a
name of one kind only, so that nobody is shown another snapshot than was named. Its form tells ids, times, tags that are
written as such, and the beginning; what has such a form cannot name a branch or a tag. A branch and a tag look alike,
so the protocol gives no name to both. A store of before may hold names that are refused now: such a tag is found as
``tags/NAME``.

Where outputs have names, each has a ref ``published/NAME`` in place of ``published``. No name of a branch has a slash.
A sink that cannot take back has two refs. ``delivering/SINK`` says up to where its rows may have been handed over, and
``delivered/SINK`` up to where they were; an output with a name has ``delivering/NAME/SINK``.

``ObjectKind`` and the paths below it are the names of all objects in the folder of a pipeline, for writers and for
deletions alike. Its summary lies beside all others. Files among the input that hold records which land again have names
here too (``RelandedFile``). An object with another name is not Headrace's: no sweep touches it, and ``fsck`` only names
it. So a pattern here never matches more than what its writer makes.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from hashlib import sha256
from urllib.parse import quote

import msgspec

MAIN, PUBLISHED, TAGS = "main", "published", "tags/"
"""The branch that runs are on, what readers of it see, and what the ref of a tag begins with."""

BEGINNING = "beginning"
"""The place before the first snapshot."""

NOTHING = "none"
"""How names of audits, and what is printed, say that there is no snapshot."""

SNAPSHOT = "[0-9a-f]{16}"
"""A regular expression of ids of snapshots."""

NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
"""A regular expression of what can name a branch or a tag, also for forms; ``why_not`` says the rest."""

_OF_OUTPUT = f"{PUBLISHED}/"
_DELIVERING, _DELIVERED_PREFIX = "delivering/", "delivered/"
_RESERVED_NAMES = frozenset({BEGINNING, NOTHING, PUBLISHED, "tags"})
_SNAPSHOT, _NAME = re.compile(SNAPSHOT), re.compile(NAME)
_TIME_PATTERN = re.compile(r"\d{4}-\d\d-\d\d.*")


class NameKind(Enum):
    """What a text names, by its form. REF: a branch, ``published`` or a tag; TAG: a tag that is written as such."""

    SNAPSHOT = "the id of a snapshot"
    TIME = "a time"
    BEGINNING = "the beginning"
    TAG = "a tag"
    REF = "a branch or a tag"


def delivering_ref(output: str, sink: str) -> str:
    """The ref up to which rows may have been handed over to a ``sink`` of ``output``; "": the output without a name."""
    return f"{_DELIVERING}{output}/{sink}" if output else f"{_DELIVERING}{sink}"


def delivered_ref(output: str, sink: str) -> str:
    """The ref up to which all rows were handed over to a ``sink`` of ``output``."""
    return _DELIVERED_PREFIX + delivering_ref(output, sink).removeprefix(_DELIVERING)


def is_delivery(ref: str) -> bool:
    """Whether ``ref`` says what was handed over to a sink that cannot take back."""
    return ref.startswith((_DELIVERING, _DELIVERED_PREFIX))


def delivery_of(ref: str) -> tuple[str, str]:
    """The output and the sink of such a ref."""
    output, _, sink = ref.partition("/")[2].rpartition("/")
    return output, sink


def published_ref(output: str) -> str:
    """The ref of what readers of ``output`` see; "": the output without a name."""
    return f"{_OF_OUTPUT}{output}" if output else PUBLISHED


def is_published(ref: str) -> bool:
    """Whether ``ref`` says what readers of some output see."""
    return ref == PUBLISHED or ref.startswith(_OF_OUTPUT)


def output_of(ref: str) -> str:
    """The output whose readers see ``ref``, the inverse of ``published_ref``."""
    return ref.removeprefix(PUBLISHED).removeprefix("/")


def published_of(refs: Mapping[str, str]) -> dict[str, str]:
    """What readers see of each output that has been published: snapshots by output."""
    return {output_of(ref): snapshot for ref, snapshot in refs.items() if is_published(ref)}


def kind_of_name(text: str) -> NameKind:
    """What ``text`` is the name of."""
    if text.startswith(TAGS):
        return NameKind.TAG
    if _SNAPSHOT.fullmatch(text.lower()):
        return NameKind.SNAPSHOT
    if _TIME_PATTERN.fullmatch(text):
        return NameKind.TIME
    return NameKind.BEGINNING if text == BEGINNING else NameKind.REF


def ref_of(name: str, refs: Collection[str], branches: Collection[str]) -> str | None:
    """The ref that ``name`` means where a ref is meant: a branch, ``published`` or a tag; None if there is none.

    ``refs`` have a snapshot; ``branches`` need have none.
    """
    if name in refs or name in branches or name in {MAIN, PUBLISHED}:
        return name
    tag = name if name.startswith(TAGS) else f"{TAGS}{name}"
    return tag if tag in refs else None


def why_not(name: str) -> str | None:
    """Why ``name`` cannot name a new branch or tag; None if it can."""
    if not _NAME.fullmatch(name):
        return "use up to 100 letters, digits, _, . and -, beginning with a letter or a digit"
    if name.lower() in _RESERVED_NAMES:
        return "commands mean something else by that word"
    kind = kind_of_name(name)
    return None if kind is NameKind.REF else f"it would be read as {kind.value}"


RUN_ID = "[A-Za-z0-9][A-Za-z0-9_.-]{0,199}"
"""A regular expression of ids of runs."""

SUMMARIES = ".summaries/"
"""The folder of the summaries of all pipelines; no pipeline has such a name."""

_NUMBER_PATTERN = r"\d{20}"
_OUTPUT = "[a-z][a-z0-9_]{0,62}"
_INPUT = "[A-Za-z0-9_.~%-]{1,600}"
_OTHER = re.compile("[^A-Za-z0-9_-]+")
_LONGEST_LABEL = 120


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
    DELIVERIES = "deliveries"
    LANDED = "landed"
    READERS = "readers"


_PATTERNS_BELOW: Mapping[ObjectKind, str] = {
    ObjectKind.LOG: rf"/{_NUMBER_PATTERN}\.json",
    ObjectKind.HINT: "",
    ObjectKind.MANIFESTS: rf"/{SNAPSHOT}\.json",
    ObjectKind.INDEX: r"/[0-9a-f]{32}\.json",
    ObjectKind.DATA: rf"/\d{{8,}}-{SNAPSHOT}/[a-z][A-Za-z0-9_-]*\.parquet",
    ObjectKind.AUDITS: (
        rf"/((?P<output>{_OUTPUT})/)?((?P<begin>{SNAPSHOT}|{NOTHING})--(?P<end>{SNAPSHOT})/"
        rf"(result\.json|docs/[a-z0-9_-]+\.html)|(?P<of>{SNAPSHOT})/history\.json)"
    ),
    ObjectKind.RUNS: rf"/{RUN_ID}\.json",
    ObjectKind.MARKS: rf"/{_NUMBER_PATTERN}-{SNAPSHOT}\.json",
    ObjectKind.DELIVERIES: rf"/({_OUTPUT}/)?[A-Za-z0-9_.-]{{1,100}}\.json",
    ObjectKind.LANDED: (
        rf"/(?P<input>{_INPUT})/(_ranges/((?P<claim>{_NUMBER_PATTERN})\.json|(?P<seal>{_NUMBER_PATTERN})\.seal\.json)"
        rf"|(?P<range>{_NUMBER_PATTERN})-(?P<number>\d{{5}})-(?P<last>\d{{5}})-[A-Za-z0-9_-]{{1,{_LONGEST_LABEL}}}\.parquet"
        rf"|_written/(?P<of>{_NUMBER_PATTERN})-(?P<attempt>{SNAPSHOT})/[0-9-]+\.parquet)"
    ),
    ObjectKind.READERS: rf"/(?P<reader>{_OUTPUT})-[0-9a-f]{{16}}\.json",
}
_PATTERNS = {kind: re.compile(f"{re.escape(kind.value)}{pattern}") for kind, pattern in _PATTERNS_BELOW.items()}
_KINDS = {kind.value: kind for kind in ObjectKind}


def kind_of(pipeline: str, path: str) -> ObjectKind | None:
    """What ``path`` can name of ``pipeline``; None if Headrace writes nothing under that name."""
    path_in_pipeline = path.removeprefix(f"{pipeline}/")
    if path_in_pipeline == path:
        return None
    kind = _KINDS.get(path_in_pipeline.partition("/")[0])
    return kind if kind is not None and _PATTERNS[kind].fullmatch(path_in_pipeline) else None


def object_folder(pipeline: str, kind: ObjectKind) -> str:
    """Where objects of ``kind`` are, with a slash at its end."""
    return f"{pipeline}/{kind.value}/"


def entry_path(pipeline: str, number: int) -> str:
    return f"{pipeline}/{ObjectKind.LOG}/{number:020d}.json"


def hint_path(pipeline: str) -> str:
    """Where the number of a recent entry is."""
    return f"{pipeline}/{ObjectKind.HINT}"


def manifest_path(pipeline: str, snapshot: str) -> str:
    return f"{pipeline}/{ObjectKind.MANIFESTS}/{snapshot}.json"


def node_path(pipeline: str, node_id: str) -> str:
    return f"{pipeline}/{ObjectKind.INDEX}/{node_id}.json"


def data_prefix(pipeline: str, epoch: int, attempt: str) -> str:
    """Where one attempt at one epoch puts its data files; ``attempt`` must be unique, as a snapshot id is."""
    return f"{pipeline}/{ObjectKind.DATA}/{epoch:08d}-{attempt}"


def audit_folder(pipeline: str, from_snapshot: str | None, to_snapshot: str, output: str = "") -> str:
    """Where the audit of (``from_snapshot``, ``to_snapshot``] of an ``output`` is; None: from the beginning."""
    return f"{_audits_folder(pipeline, output)}{from_snapshot or NOTHING}--{to_snapshot}"


def history_path(pipeline: str, snapshot: str, output: str = "") -> str:
    """Where the figures of the versions of an ``output`` that lead to ``snapshot`` are, for audits of what follows."""
    return f"{_audits_folder(pipeline, output)}{snapshot}/history.json"


def _audits_folder(pipeline: str, output: str = "") -> str:
    return object_folder(pipeline, ObjectKind.AUDITS) + (f"{output}/" if output else "")


class AuditedRange(msgspec.Struct, frozen=True):
    """What an object below ``audits`` is about: an ``output`` ("": the one without a name), and the snapshots
    (``begin``, ``end``]. ``begin`` is None for the beginning. Figures of versions are of their end alone.
    """

    output: str
    begin: str | None
    end: str


def audited_range(pipeline: str, path: str) -> AuditedRange | None:
    """What the object at ``path`` is about; None if no audit writes one of that name."""
    match = _PATTERNS[ObjectKind.AUDITS].fullmatch(path.removeprefix(f"{pipeline}/"))
    if match is None:
        return None
    begin, end = match["begin"], match["end"] or match["of"]
    return AuditedRange(match["output"] or "", None if begin == NOTHING else begin, end)


def result_path(pipeline: str, run_id: str) -> str:
    return f"{pipeline}/{ObjectKind.RUNS}/{run_id}.json"


def delivery_path(pipeline: str, output: str, sink: str) -> str:
    """Where it is noted what a sink of an output held last; ``output``: "" if it has no name."""
    return object_folder(pipeline, ObjectKind.DELIVERIES) + (f"{output}/" if output else "") + f"{sink}.json"


@dataclass(frozen=True, order=True)
class LandedFile:
    """File ``number``, from 0, of the range ``range`` of an input, whose last file is ``last``."""

    range: int
    number: int
    last: int


def landed_folder(pipeline: str, input_name: str) -> str:
    """Where records of an input are landed, with a slash at its end."""
    return f"{object_folder(pipeline, ObjectKind.LANDED)}{quote(input_name, safe='')}/"


def range_path(pipeline: str, input_name: str, number: int) -> str:
    """Where it is claimed that range ``number`` of an input is landed."""
    return f"{ranges_folder(pipeline, input_name)}{number:020d}.json"


def seal_path(pipeline: str, input_name: str, number: int) -> str:
    """Where the seal of range ``number`` of an input is; it sorts behind its claim, and before the next one."""
    return f"{ranges_folder(pipeline, input_name)}{number:020d}.seal.json"


def ranges_folder(pipeline: str, input_name: str) -> str:
    """Where the ranges of an input are, with a slash at its end."""
    return f"{landed_folder(pipeline, input_name)}_ranges/"


def landed_path(pipeline: str, input_name: str, file: LandedFile, label: str) -> str:
    """Where a file of an input is; ``label`` says what it is of."""
    name = f"{file.range:020d}-{file.number:05d}-{file.last:05d}-{_OTHER.sub('-', label)[-_LONGEST_LABEL:]}.parquet"
    return landed_folder(pipeline, input_name) + name


AGAIN_PREFIX = "again-"
"""How names of files of records that land again begin where the pipeline reads. Elsewhere they are the only files of
their records.
"""

_RELANDED_NAME = re.compile(rf"({AGAIN_PREFIX})?(?P<view>late|rejected)-(?P<dropped>\d{{8}}-{SNAPSHOT})")


class RelandedFile(msgspec.Struct, frozen=True):
    """A file of records that landed again: the ``view`` that had them; epoch and snapshot that ``dropped`` them."""

    view: str
    dropped: str


def relanded_file(path: str) -> RelandedFile | None:
    """What a file of input with that name holds, if its records landed again."""
    match = _RELANDED_NAME.match(path.rpartition("/")[2])
    return None if match is None else RelandedFile(match["view"], match["dropped"])


def written_folder(pipeline: str, input_name: str, number: int, attempt: str) -> str:
    """Where one ``attempt`` at writing range ``number`` of an input puts its files, with a slash at its end; it must be
    unique, as a snapshot id is.
    """
    return f"{landed_folder(pipeline, input_name)}_written/{number:020d}-{attempt}/"


def written_attempt(pipeline: str, path: str) -> tuple[int, str] | None:
    """The range that the file at ``path`` was written for, and by which attempt; None if it is no such file."""
    match = _match_landed(pipeline, path)
    return None if match is None or match["of"] is None else (int(match["of"]), match["attempt"])


def landed_input(pipeline: str, path: str) -> str | None:
    """The folder, with a slash at its end, of the input that ``path`` was landed for; None if it is not one."""
    match = _match_landed(pipeline, path)
    return None if match is None else f"{object_folder(pipeline, ObjectKind.LANDED)}{match['input']}/"


def landed_file(pipeline: str, path: str) -> LandedFile | None:
    """Which file the one at ``path`` is; None if it is none."""
    match = _match_landed(pipeline, path)
    if match is None or match["range"] is None:
        return None
    return LandedFile(int(match["range"]), int(match["number"]), int(match["last"]))


def claimed_range(pipeline: str, path: str) -> int | None:
    """The number of the range that is claimed at ``path``; None if none is."""
    match = _match_landed(pipeline, path)
    return None if match is None or match["claim"] is None else int(match["claim"])


def sealed_range(pipeline: str, path: str) -> int | None:
    """The number of the range whose seal is at ``path``; None if that is none."""
    match = _match_landed(pipeline, path)
    return None if match is None or match["seal"] is None else int(match["seal"])


def _match_landed(pipeline: str, path: str) -> re.Match[str] | None:
    return _PATTERNS[ObjectKind.LANDED].fullmatch(path.removeprefix(f"{pipeline}/"))


def reader_path(pipeline: str, reader: str, root: str, read_as: str) -> str:
    """Where a ``reader`` under ``root``, whose input ``read_as`` is this pipeline, says what it needs of it."""
    unique = sha256(f"{root}\n{read_as}".encode()).hexdigest()[:16]
    return f"{object_folder(pipeline, ObjectKind.READERS)}{reader}-{unique}.json"


def reader_at(pipeline: str, path: str) -> str | None:
    """The pipeline that says at ``path`` what it needs of ``pipeline``; None if none does."""
    match = _PATTERNS[ObjectKind.READERS].fullmatch(path.removeprefix(f"{pipeline}/"))
    return None if match is None else match["reader"]


def summary_path(pipeline: str) -> str:
    """Where the summary of a pipeline is: all of them in one folder, so that one listing tells which have changed."""
    return f"{SUMMARIES}{pipeline}.json"


def summarized_pipeline(path: str) -> str | None:
    """The pipeline whose summary is at ``path``; None if no summary has that name."""
    name = path.removeprefix(SUMMARIES).removesuffix(".json")
    return name if name.isidentifier() and path == summary_path(name) else None


def mark_path(pipeline: str, mark: str) -> str:
    """Where the mark ``mark`` is, which is called by an entry's number and an id."""
    return f"{pipeline}/{ObjectKind.MARKS}/{mark}.json"


def entry_number(name: str) -> int | None:
    """The number of the entry, or of the mark, whose file has that ``name``; None if it is neither."""
    match = re.fullmatch(rf"({_NUMBER_PATTERN})(-{SNAPSHOT})?\.json", name)
    return None if match is None else int(match[1])
