"""What records rule out that can be withdrawn, or that are versions of rows (semantics 14.9, 14.10).

A pipeline is refused when it is built if something in it cannot take back, or would take versions for rows. So it is if
a withdrawal would not find what it withdraws.
"""

from collections.abc import Sequence

from headrace.errors import PipelineError
from headrace.model import windows
from headrace.model.accumulation import Accumulation, How
from headrace.model.changelog import DebeziumEnvelope, DebeziumVersions, RecordSign, SignedBy
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.typing import columns_of, is_same_expression, type_of
from headrace.model.triggers import Trigger
from headrace.pipeline.endpoints import Input
from headrace.pipeline.rows import Newest
from headrace.pipeline.sources import FilesSource
from headrace.pipeline.stages import Aggregation, check_finishing, looks_at_values

_WITHDRAWN = "records can be withdrawn"


def check_changelog(input_: Input) -> None:
    """Raise PipelineError if the changelog of an input does not fit its records."""
    source, changelog = input_.source, input_.source.changelog
    if changelog is None:
        return
    transform = source.transform
    if transform is not None and not isinstance(changelog, SignedBy):
        raise PipelineError(
            f"it is read of the source's own records, and {transform.name} makes others of them. Let the function give "
            "a column of 1 and -1, and name that one"
        )
    if transform is not None and not transform.deterministic:
        raise PipelineError(
            f"{transform.name} is declared not deterministic: nobody could find again what it made of a record, to "
            "withdraw it; use a deterministic function"
        )
    if isinstance(changelog, DebeziumEnvelope) and isinstance(source, FilesSource) and source.format == "csv":
        raise PipelineError("a CSV file has no objects, and an envelope is one; read JSON or Parquet")
    if isinstance(changelog, RecordSign):
        kind = type_of(changelog.sign_of(source.schema), source.as_read.columns)
        if kind is not DataType.INT:
            raise PipelineError(
                f"it is {kind}, and must be int: 1 of a record that adds a row, -1 of one that withdraws it"
            )


def wrong_for_withdrawals(
    inputs: Sequence[Input], where: windows.WindowFn, when: Trigger, how: How, *, has_loop: bool
) -> str | None:
    """What of the first aggregation could not take back records of ``inputs``, with what to write; None if all can."""
    return _wrong_how(how) or _wrong_windows(inputs, where, has_loop) or _wrong_trigger(when, how)


def _wrong_how(how: How) -> str | None:
    if how.keep_last is not None:
        return (
            f"how: {_WITHDRAWN}, and a window that keeps its last elements may have forgotten them; leave out keep_last"
        )
    if how.accumulation is Accumulation.RETRACTING:
        return None
    which = how.accumulation.name.lower()
    left = {
        Accumulation.ACCUMULATING: "the row of a window would stand whose records are all withdrawn",
        Accumulation.DISCARDING: "a pane has only what came since the one before it, which is not what is there",
    }
    return f"how: {_WITHDRAWN}, and in {which} mode {left[how.accumulation]}; use how=retracting(...)"


def _wrong_windows(inputs: Sequence[Input], where: windows.WindowFn, has_loop: bool) -> str | None:
    if has_loop:
        return (
            f"loop: {_WITHDRAWN}, and the values of a loop hold each other up. On a circle that nothing leads to any "
            "more each would keep what its neighbour says"
        )
    if where.merges:
        return (
            f"where: {_WITHDRAWN}, and a withdrawn one may have linked two sessions, which never split; use windows "
            "that do not merge"
        )
    of_arrival = _withdrawn_by_arrival(inputs)
    if of_arrival is not None and not isinstance(where, windows.GlobalWindows):
        return (
            f"where: {of_arrival}, so a withdrawal would come to another window than what it withdraws; give it the "
            "event time of the row, or use GlobalWindows()"
        )
    return None


def wrong_for_withdrawn_rows(inputs: Sequence[Input], aggregation: Aggregation) -> str | None:
    """What of rows would not be the same in a withdrawal, with what to write; None if all is."""
    wrong_columns = _wrong_columns_of_rows(inputs, aggregation) or _wrong_sign_in_rows(inputs, aggregation)
    return _wrong_time_of_rows(inputs) or wrong_columns


def _wrong_time_of_rows(inputs: Sequence[Input]) -> str | None:
    of_arrival = _withdrawn_by_arrival(inputs)
    if of_arrival is None:
        return None
    return (
        f"rows: {of_arrival}, so a withdrawal would have another event time than the row that it withdraws; give it "
        "the event time of the row"
    )


def _wrong_columns_of_rows(inputs: Sequence[Input], aggregation: Aggregation) -> str | None:
    of_records = frozenset().union(*(input_.source.metadata for input_ in inputs))
    of_changes = frozenset[str]().union(*(input_.source.columns_of_changes for input_ in inputs))
    for what, expr in aggregation.expressions():
        if what != "the filter" and (read := sorted(columns_of(expr) & of_changes)):
            has = (
                "the source says of each record"
                if read[0] in of_records
                else "the envelope of a change has for both rows"
            )
            return (
                f"rows: {what} reads {read[0]!r}, which {has}, so a withdrawal would have another value than the row "
                "that it withdraws; leave it out"
            )
    return None


def _wrong_sign_in_rows(inputs: Sequence[Input], aggregation: Aggregation) -> str | None:
    """A row that has all columns that its sign is told by as they are has other values than its withdrawal."""
    kept_columns = {expr.name for expr in aggregation.rows.values() if isinstance(expr, Column)}
    for input_ in inputs:
        changelog = input_.source.changelog
        if not isinstance(changelog, RecordSign) or input_.columns:
            continue
        read = input_.source.columns_of_signs
        if read <= kept_columns:
            return (
                f"rows: they have {' and '.join(map(repr, sorted(read)))}, which tells a row of input "
                f"{input_.name} from its withdrawal, so these would never be equal; name the other columns in rows="
            )
    return None


def _withdrawn_by_arrival(inputs: Sequence[Input]) -> str | None:
    of_arrival = [input_.name for input_ in inputs if input_.source.changelog and input_.event_time.expr is None]
    return f"records of input {of_arrival[0]} can be withdrawn, and go by the time of arrival" if of_arrival else None


def _wrong_trigger(when: Trigger, how: How) -> str | None:
    if (of_values := looks_at_values(when)) is not None:
        return (
            f"when: {_WITHDRAWN}, and {of_values} looks at what elements hold, where a withdrawal would be one "
            "more; use on_update(), or a trigger that counts or waits"
        )
    try:
        check_finishing(when, how.allowed_lateness)
    except PipelineError:
        return (
            f"when: {_WITHDRAWN}, and a trigger that finishes closes its window, where nothing is withdrawn any more; "
            "use Repeatedly(...), or AfterWatermark with a late trigger"
        )
    return None


def check_versions(input_: Input) -> None:
    """Raise PipelineError if the versions of an input do not fit its records, or what is read of them."""
    source, versions = input_.source, input_.source.versions
    assert versions is not None
    if source.is_flat_mapped:
        made_by = "explode=" if source.transform is None else source.transform.name
        raise PipelineError(
            f"a record is one version, and {made_by} makes others of it: leave versions= out, and let "
            "newest(order, deleted=) say which of what is made counts"
        )
    versions.check(source.schema)
    if isinstance(versions, DebeziumVersions) and isinstance(source, FilesSource) and source.format == "csv":
        raise PipelineError("a CSV file has no objects, and an envelope is one; read JSON or Parquet")
    event_time, has = input_.event_time, source.columns_of_tombstones
    if has is None:
        return
    if event_time.split is not None:
        _check_bare("event_time(split)", event_time.split, has)
    if event_time.expr is not None and versions.are_bare:
        _check_bare("event_time(at)", event_time.expr, has)


def _check_bare(what: str, expr: Expr, has: frozenset[str]) -> None:
    """Raise PipelineError if ``expr`` reads columns that a tombstone does not have."""
    if lacks := sorted(columns_of(expr) - has):
        raise PipelineError(
            f"{what} reads {lacks[0]!r}, which a version that deletes a row does not have; it has "
            f"{', '.join(sorted(has))}"
        )


def wrong_for_versions(
    inputs: Sequence[Input], id_: Expr | None, aggregation: Aggregation, *, are_joined: bool
) -> str | None:
    """What a first ``aggregation`` would get wrong that took versions of ``inputs`` for rows, with what to write; None
    if it knows what they are. ``id_``: by what duplicates are told. ``are_joined``: they meet others before.
    """
    if id_ is not None:
        for has in (input_.source.columns_of_tombstones for input_ in inputs):
            if has is not None:
                _check_bare("deduplicate", id_, has)
    if aggregation.rows and (aggregation.takes_each or not aggregation.takes_rows):
        return None
    take = getattr(aggregation, "take", None)
    if not isinstance(take, Newest):
        of_what = "take: these would be taken" if aggregation.takes_rows else "what: that would be computed"
        return (
            f"{of_what} of versions, of which a row has as many as it was changed, and not of rows. Keep the newest "
            'of each row in an output, hr.Rows(key="id", take=hr.newest()), and let another read that one by of=. '
            "Versions themselves are rows of hr.Rows([...]), which others read by of="
        )
    if are_joined:
        return (
            "join: a version that meets nothing would leave the one before it standing. Keep the newest rows in a "
            "pipeline of their own, and join what it publishes, hr.published(...)"
        )
    return _wrong_union(inputs) or _wrong_rows_of_versions(inputs[0], aggregation)


def _wrong_union(inputs: Sequence[Input]) -> str | None:
    own, *others = (input_.source.versions for input_ in inputs)
    if not others:
        return None
    if own is None or any(other != own for other in others):
        return "union: not all inputs have the same versions=; rows of several inputs have one key and one order"
    position = inputs[0].source.position
    if own.order is not None and position is not None and columns_of(own.order) & columns_of(position):
        return (
            "union: versions go by their place in a topic, which says nothing of another one: name in versions= what "
            "orders them in all inputs"
        )
    return None


def _wrong_rows_of_versions(input_: Input, aggregation: Aggregation) -> str | None:
    versions = input_.source.versions
    assert versions is not None
    key = [Column(name) for name in versions.key]
    own = [*aggregation.key.values()]
    if len(own) != len(key) or not all(any(is_same_expression(one, other) for other in own) for one in key):
        return (
            f"key: versions are of the row of {', '.join(versions.key)}, and the newest of another key would be some "
            f"version of some row; write key={[*versions.key]}"
        )
    if aggregation.filter is not None and columns_of(aggregation.filter) - {*versions.key}:
        return (
            "filter: a version that it leaves out would leave the one before it standing. Filter the newest rows in an "
            "output of their own, hr.Rows([...], of=..., filter=...); here it may read the key alone"
        )
    return None
