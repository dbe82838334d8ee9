"""The kinds of decisions: what each asks for, and what it does to a pipeline.

Each is a move in the history of snapshots, or a look after what is stored, as a method of ``hr.open(root)[name]`` does
it. None needs Spark.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Param

from headrace_airflow.decisions.building import switch
from headrace_airflow.forms import asked_in_form, option_fields
from headrace_snapshots.refs import BEGINNING, MAIN, output_of, published_of

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle

Form = Mapping[str, Any]
Act = Callable[["PipelineHandle", Form, str], Iterator[str]]
"""Does it, for the reason that is given last; says in lines what it did."""


@dataclass(frozen=True)
class Decision:
    """A kind of decision. ``about`` says in the UI what it does; ``params`` are the fields beside pipeline and reason.

    ``needs_reason``: whether it cannot be submitted without one.
    """

    name: str
    about: str
    params: Callable[[], dict[str, Any]]
    act: Act
    needs_reason: bool = False


def _text(title: str, description: str, default: str | None = None, *, required: bool = False) -> Param:
    if required:
        return Param(type="string", minLength=1, title=title, description=description)
    return Param(default, type=["null", "string"], title=title, description=description)


_SNAPSHOT: Final = "A snapshot's id, a branch, a tag"
_DRY_RUN: Final = ("Dry run", "Only say in the log what would happen.")


def _release(handle: "PipelineHandle", form: Form, reason: str) -> Iterator[str]:
    from headrace.runs.publishing.publish import STAY

    asked, output = form["snapshot"] or MAIN, form.get("output") or None
    if (shown := _seen_already(handle, asked, output)) is not None:
        yield f"published already: readers see {shown} since an earlier entry of the log"
        return
    entry = handle.release(asked, message=reason, output=output)
    for ref, (_, after) in entry.moves.items():
        of = f" of output {output}" if (output := output_of(ref)) else ""
        yield f"readers see {after}{of} now, released by entry {entry.number}"
    if not entry.moves:
        yield f"{STAY} (entry {entry.number})"


def _seen_already(handle: "PipelineHandle", asked: str, output: str | None) -> str | None:
    """The snapshot that a release would let readers see, if they see it."""
    head = handle.catalog.head()
    snapshot = head.refs.get(asked) or handle.show(asked).snapshot_id
    shown = published_of(head.refs).get(output) if output else handle.catalog.published_by_all(head.refs)
    return snapshot if shown == snapshot else None


def _rollback(handle: "PipelineHandle", form: Form, reason: str) -> Iterator[str]:
    branch = form["branch"] or MAIN
    asked = asked_in_form("rollback", form)
    given_up = handle.rollback(to=form["to"], branch=branch, dry_run=True, **asked)
    verb = "would move" if form["dry_run"] else "moves"
    for ref, (before, after) in given_up.moves.items():
        yield f"{ref} {verb} from {before or 'nothing'} to {after or 'nothing'}"
    yield from given_up.told
    if not form["dry_run"]:
        entry = handle.rollback(to=form["to"], branch=branch, message=reason, **asked)
        yield f"rolled back by entry {entry.number}; the next run continues from there"


def _drop(handle: "PipelineHandle", form: Form, reason: str) -> Iterator[str]:
    entry = handle.drop(form["name"], message=f"dropped {form['name']}: {reason}")
    yield f"dropped {form['name']} by entry {entry.number}; left are {', '.join(sorted(entry.refs))}"


def _tag(handle: "PipelineHandle", form: Form, reason: str) -> Iterator[str]:
    entry = handle.tag(form["name"], form["snapshot"] or MAIN, message=reason)
    (snapshot,) = (after for _, after in entry.moves.values())
    yield f"tag {form['name']} names {snapshot}"


def _fork(handle: "PipelineHandle", form: Form, reason: str) -> Iterator[str]:
    entry = handle.fork(form["snapshot"] or MAIN, form["name"], message=reason)
    yield f"branch {form['name']} begins at {entry.refs[form['name']]}: process it with Branch = {form['name']}"


def _replay(handle: "PipelineHandle", form: Form, reason: str) -> Iterator[str]:
    at = form["at"] or MAIN
    landed = (
        handle.replay_late(output=form.get("output") or None, to=form["to"], at=at)
        if form["records"] == "late"
        else handle.replay_rejected(output=form.get("output") or None, input=form["input"], to=form["to"], at=at)
    )
    for name, value in landed.to_json().items():
        yield f"{name.replace('_', ' ')}: {value}"


KINDS: Final = (
    Decision(
        "release",
        "Publish a snapshot whose audit failed. Readers see its rows from then on; the log of the pipeline says who "
        "decided it and why.",
        lambda: {
            "snapshot": _text("Snapshot", f"{_SNAPSHOT}. Empty: the newest of main."),
            "output": _text("Output", "Which of several outputs. Empty: all whose readers see an older snapshot."),
        },
        _release,
        needs_reason=True,
    ),
    Decision(
        "rollback",
        "Move a branch back to a snapshot. What readers see moves with main if it is newer; the next run reads again "
        "what came after. Nothing is deleted.",
        lambda: {
            "to": _text("To", f"{_SNAPSHOT}, or {BEGINNING!r}.", required=True),
            "branch": _text("Branch", "Empty: main."),
            "dry_run": switch(*_DRY_RUN),
            **option_fields("rollback"),
        },
        _rollback,
        needs_reason=True,
    ),
    Decision(
        "drop",
        "Drop a branch or a tag. Its snapshots stay in the store until they expire.",
        lambda: {"name": _text("Branch or tag", "Which one is dropped.", required=True)},
        _drop,
    ),
    Decision(
        "tag",
        "Give a snapshot a name that stays, and keeps it from expiring.",
        lambda: {
            "name": _text("Tag", "The new name.", required=True),
            "snapshot": _text("Snapshot", f"{_SNAPSHOT}. Empty: the newest of main."),
        },
        _tag,
    ),
    Decision(
        "fork",
        "Make a branch at a snapshot, for runs beside main. Readers see nothing of it.",
        lambda: {
            "name": _text("Branch", "The new name.", required=True),
            "snapshot": _text("Snapshot", f"{_SNAPSHOT}. Empty: the newest of main."),
        },
        _fork,
    ),
    Decision(
        "replay",
        "Land late records or dead letters once more, each only once, as files of the source's format: a run of the "
        "pipeline reads them, once it can.",
        lambda: {
            "records": Param(
                "rejected",
                type="string",
                enum=["rejected", "late"],
                values_display={"rejected": "dead letters", "late": "late records"},
                title="Records",
                description="Which of them.",
            ),
            "output": _text("Output", "What one of several outputs dropped. Empty: dead letters that none could take."),
            "input": _text("Input", "Dead letters of one input alone. Empty: of all."),
            "to": _text(
                "To", "A path below the root, or a URI. Empty: below the folders 'late' and 'rejected' of the root."
            ),
            "at": _text("At", f"{_SNAPSHOT}. Empty: what the newest of main knows."),
        },
        _replay,
    ),
)
